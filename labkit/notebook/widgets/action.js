// A button whose click brings the settings as they stand in the page. The page keeps a slider's last move back while the
// kernel works on the one before it, and sends a click at once: told alone, the click would come first.
function render({model, el}) {
  const button = document.createElement("button");
  el.append(button);
  const show = () => {
    const style = model.get("button_style");
    button.className = `lm-Widget jupyter-widgets jupyter-button widget-button${style ? ` mod-${style}` : ""}`;
    button.style.width = "auto";
    button.type = "button";
    button.title = model.get("tooltip");
    button.disabled = model.get("disabled");
    const icon = document.createElement("i");
    icon.className = `fa fa-${model.get("icon")}`;
    button.replaceChildren(icon, document.createTextNode(` ${model.get("description")}`));
  };
  let controls = [];
  const look = async () => {
    const ids = model.get("carries");
    controls = await Promise.all(ids.map(async id => [id, await model.widget_manager.get_model(id)]));
  };
  const click = () => {
    const settings = {};
    for (const [id, control] of controls) {
      const chosen = control.get("index");  // a menu sends its place, everything else its value
      settings[id] = chosen === undefined ? control.get("value") : chosen;
    }
    model.send({event: "click", settings});
  };
  const changes = ["description", "icon", "tooltip", "disabled", "button_style"].map(name => `change:${name}`).join(" ");
  model.on(changes, show);
  model.on("change:carries", look);
  button.addEventListener("click", click);
  show();
  look();
  return () => {
    model.off(changes, show);
    model.off("change:carries", look);
  };
}

export default {render};
