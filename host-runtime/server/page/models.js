// Models of a server that has several, and the one that this page asks.

import * as api from "./api.js";
import * as store from "./store.js";
import { make } from "./dom.js";

/** The name that requests give; empty on a server with one model. */
let chosen = "";

/** What the body of a request has of it. */
export function named() {
  return chosen ? { model: chosen } : {};
}

/** The address of what is read about the model. With `waits` it is loaded for it. */
export function address(path, waits = false) {
  return chosen ? `${path}?model=${encodeURIComponent(chosen)}&autoload=${waits}` : path;
}

/** Asks which models there are, and lets the user choose if there are several; `changed` is called when that is done. */
export async function offer(select, changed) {
  const { data } = await api.json("v1/models").catch((error) => {
    // A server with one model has no list before that is loaded.
    if (error.status === 503) {
      return { data: [] };
    }
    throw error;
  });
  // Only servers with several models tell where each is.
  const several = data.filter(({ status }) => status);
  select.hidden = several.length === 0;
  const names = several.map(({ id }) => id);
  const loaded = several.find(({ status }) => status.value === "loaded");
  chosen = [chosen, store.model(), loaded?.id, names[0]].find((name) => names.includes(name)) ?? "";
  select.replaceChildren(...names.map((name) => make("option", { value: name, selected: name === chosen }, name)));
  select.onchange = () => {
    chosen = select.value;
    store.saveModel(chosen);
    changed();
  };
}
