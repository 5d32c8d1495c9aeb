// A link to a file below JupyterLab's own folder. The page knows that folder and its address; the kernel does not.
function place(path, home) {
  const node = document.getElementById("jupyter-config-data");
  const config = node ? JSON.parse(node.textContent) : {};
  let root = config.serverRoot || "";
  if (root.startsWith("~")) root = home + root.slice(1);
  root = root.replace(/\/$/, "") + "/";
  if (!config.baseUrl || !path.startsWith(root)) return null;
  const parts = path.slice(root.length).split("/").map(encodeURIComponent).join("/");
  return `${config.baseUrl.replace(/\/$/, "")}/files/${parts}`;
}

function render({model, el}) {
  const line = document.createElement("span");
  line.className = "labkit-note";
  line.setAttribute("role", "status");
  el.append(line);
  const show = async () => {
    const path = model.get("path");
    line.textContent = path ? `written: ${model.get("shown")}` : "";
    if (!path) return;
    const address = place(path, model.get("home"));
    const say = word => { model.set("opened", word); model.save_changes(); };
    if (!address) {
      line.append(" (outside this JupyterLab's folder: open it from your file manager)");
      return say("outside this JupyterLab's folder");
    }
    const link = document.createElement("a");
    link.href = address;
    link.target = "_blank";
    link.rel = "noopener";
    link.textContent = "open";
    line.append(" ", link);
    const answer = await fetch(address, {method: "HEAD"}).catch(e => ({ok: false, status: String(e)}));
    line.append(answer.ok ? " ✓ it opens" : ` (does not open: ${answer.status})`);
    say(answer.ok ? "yes" : String(answer.status));
  };
  model.on("change:path", show);
  show();
  return () => model.off("change:path", show);
}

export default {render};
