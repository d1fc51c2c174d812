// Elements and buttons that several parts of the page make.

/** Makes an element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

export function iconButton(name, label, action) {
  const button = make("button", { type: "button", className: "icon small", title: label }, icon(name));
  button.setAttribute("aria-label", label);
  button.addEventListener("click", action);
  return button;
}

/** A button that copies what `text` gives, and says so. */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    await copy(text());
    button.replaceChildren(icon("check"));
    say("Copied");
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

async function copy(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text);
  }
  // Without TLS a page has no clipboard of its own, but may copy what is selected.
  const field = make("textarea", { value: text, className: "sr" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** Says something to who hears the page. */
export function say(text) {
  document.getElementById("status").textContent = text;
}

let toastTimer = 0;

/** Shows a line for a few seconds, with a way back if `undo` is given. */
export function toast(text, undo) {
  const box = document.getElementById("toast");
  const [line, button] = box.children;
  line.textContent = text;
  button.hidden = !undo;
  button.onclick = () => {
    box.hidden = true;
    undo();
  };
  box.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => { box.hidden = true; }, 6000);
}
