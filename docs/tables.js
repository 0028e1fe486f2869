// Labels the cells of wide tables with their columns: on a phone, each row is a list (site.css).
for (const table of document.querySelectorAll("table.docutils")) {
  const columns = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
  if (columns.length < 4) continue;
  table.classList.add("wide");
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, column) => (cell.dataset.column = columns[column]));
  }
}
