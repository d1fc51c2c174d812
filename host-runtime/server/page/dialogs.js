// The dialogs: settings, and the question for an API key.

import * as store from "./store.js";
import { toast } from "./dom.js";

const settings = document.getElementById("settings");
const key = document.getElementById("key");

export function applyTheme() {
  const { theme } = store.settings();
  document.documentElement.dataset.theme = theme || "system";
}

/** `changed` is called when conversations came or went. */
export function start(changed) {
  const form = settings.querySelector("form");
  document.getElementById("open-settings").addEventListener("click", () => {
    const now = { ...store.settings(), key: store.key() };
    for (const field of form.querySelectorAll("[name]")) {
      field.value = now[field.name];
    }
    settings.showModal();
  });
  form.addEventListener("input", ({ target }) => {
    // A value that makes no sense is shown as such, and not kept.
    if (!target.name || !target.checkValidity()) {
      return;
    }
    if (target.name === "key") {
      store.saveKey(target.value.trim());
    } else {
      store.saveSettings({ [target.name]: target.value });
      applyTheme();
    }
  });
  settings.addEventListener("click", closeOutside);

  const attempt = (action) => {
    try {
      action();
      changed();
    } catch (error) {
      toast(error.message);
    }
  };
  document.getElementById("export").addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([store.exportAll()], { type: "application/json" }));
    Object.assign(document.createElement("a"), { href: address, download: "hexflash-conversations.json" }).click();
    URL.revokeObjectURL(address);
  });
  const picker = document.getElementById("import-file");
  document.getElementById("import").addEventListener("click", () => picker.click());
  picker.addEventListener("change", async () => {
    const text = await picker.files[0]?.text();
    picker.value = "";
    if (text !== undefined) {
      attempt(() => toast(`${store.importAll(text)} conversations are here now.`));
    }
  });
  document.getElementById("delete-all").addEventListener("click", () => {
    const all = store.conversations();
    all.forEach(({ id }) => store.remove(id));
    settings.close();
    changed();
    toast("All conversations are deleted.", () => attempt(() => all.forEach(store.save)));
  });
}

/** Shows what a request that does not say gets, and what the model's template can do. */
export function describe(props) {
  const form = settings.querySelector("form");
  const { params } = props.default_generation_settings;
  for (const name of ["temperature", "top_k", "top_p"]) {
    const shown = Math.round(params[name] * 1000) / 1000;
    form.elements[name].placeholder = String(shown);
  }
  const canSwitch = props.chat_template.includes("enable_thinking");
  form.elements.thinking.disabled = !canSwitch;
  document.getElementById("thinking-note").hidden = canSwitch;
}

let asked = null;

/** Asks for a key; whether there is one now. Several requests that want one ask once. */
export function askForKey(wrong) {
  if (wrong !== store.key()) {
    return Promise.resolve(true);
  }
  asked ??= new Promise((answer) => {
    document.getElementById("key-wrong").hidden = !wrong;
    const field = key.querySelector("input");
    field.value = "";
    key.addEventListener("close", () => {
      asked = null;
      const given = key.returnValue === "ok" && field.value.trim();
      if (given) {
        store.saveKey(given);
      }
      key.returnValue = "";
      answer(Boolean(given));
    }, { once: true });
    key.showModal();
  });
  return asked;
}

/** A click beside a dialog closes it. */
function closeOutside(event) {
  if (event.target === event.currentTarget) {
    event.currentTarget.close();
  }
}
