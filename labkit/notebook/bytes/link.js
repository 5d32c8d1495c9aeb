// A link to this page with the settings in its query; and, once, the settings of the link that opened the page.
function render({model, el}) {
  const link = document.createElement("a");
  const copy = document.createElement("button");
  link.textContent = "Link to these settings";
  link.target = "_blank";
  copy.type = "button";
  copy.className = "jupyter-button";
  copy.textContent = "Copy link";
  copy.style.marginLeft = "1em";
  el.append(link, copy);
  const name = model.get("name");
  const show = () => {
    const to = new URL(window.location.href);
    to.hash = "";
    for (const key of [...to.searchParams.keys()]) to.searchParams.delete(key);  // a token belongs to its owner
    to.searchParams.set(name, model.get("query"));
    link.href = to.href;
  };
  copy.onclick = async () => {
    await navigator.clipboard.writeText(link.href);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy link"; }, 1500);
  };
  model.on("change:query", show);
  show();
  // JupyterLab rewrites the address while it starts; the navigation keeps the one that was asked for.
  const opened = performance.getEntriesByType("navigation")[0];
  const asked = opened && new URL(opened.name).searchParams.get(name);
  if (asked && asked !== model.get("applied")) {
    model.set("applied", asked);
    model.save_changes();
  }
}

export default {render};
