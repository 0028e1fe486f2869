// Fills the menu of versions from versions.json, which docs/versions.py writes beside their folders.
const menu = document.getElementById("versions");
const here = new URL(menu.dataset.root, document.baseURI);
const all = new URL("../", here);

fetch(new URL("versions.json", all))
  .then((answer) => (answer.ok ? answer.json() : []))
  .then((names) => {
    for (const name of names) {
      const home = new URL(`${name}/`, all);
      menu.add(new Option(name, home, false, home.href === here.href));
    }
    menu.hidden = names.length < 2;
  })
  .catch(() => {}); // one version alone, or pages that are read from a disk

menu.addEventListener("change", async () => {
  const page = new URL(menu.dataset.page, menu.value);
  const there = await fetch(page, { method: "HEAD" });
  location.href = there.ok ? page : menu.value;
});
