// What this browser keeps: conversations, settings, the API key. All of it is in localStorage, one entry for each
// conversation, so that saving one does not write the others.

const CONVERSATION = "hexflash.conversation.";
const SETTINGS = "hexflash.settings";
const KEY = "hexflash.key";
const MODEL = "hexflash.model";

/** Settings as they are before anybody changes them. An empty field leaves the choice to the server. */
const DEFAULTS = {
  system: "", temperature: "", top_k: "", top_p: "", max_tokens: "", thinking: "", theme: "", tokens: false,
};

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    // Somebody else has written there, or the browser keeps nothing for this page.
    return null;
  }
}

/** Saves a value. Throws an error in words if the browser has no room. */
function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
  } catch {
    throw new Error("This browser has no room for more. Export conversations and delete some of them.");
  }
}

export function settings() {
  return { ...DEFAULTS, ...read(SETTINGS) };
}

export function saveSettings(changed) {
  write(SETTINGS, { ...settings(), ...changed });
}

export function key() {
  return read(KEY) ?? "";
}

export function saveKey(value) {
  write(KEY, value);
}

/** The model that was asked last, on a server that has several. */
export function model() {
  return read(MODEL) ?? "";
}

export function saveModel(name) {
  write(MODEL, name);
}

/** All conversations, the one that was used last first. */
export function conversations() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(CONVERSATION));
  return names.map(read).filter(isConversation).sort((a, b) => b.updated - a.updated);
}

export function conversation(id) {
  const found = read(CONVERSATION + id);
  return isConversation(found) ? found : null;
}

export function save(conversation) {
  write(CONVERSATION + conversation.id, conversation);
}

export function remove(id) {
  localStorage.removeItem(CONVERSATION + id);
}

/** Calls `changed` with the id of a conversation that another tab has saved or removed. */
export function watch(changed) {
  addEventListener("storage", ({ key }) => {
    if (key?.startsWith(CONVERSATION)) {
      changed(key.slice(CONVERSATION.length));
    }
  });
}

/** Takes conversations out of an exported file; how many there were. */
export function importAll(text) {
  let parsed;
  try {
    parsed = JSON.parse(text);
  } catch {
    throw new Error("This file is no export of conversations: it is no JSON.");
  }
  const found = Array.isArray(parsed?.conversations) ? parsed.conversations.filter(isConversation) : [];
  if (found.length === 0) {
    throw new Error("There are no conversations in this file.");
  }
  found.forEach(save);
  return found.length;
}

export function exportAll() {
  return JSON.stringify({ version: 1, conversations: conversations() }, null, 1);
}

/** Whether a value has the shape of a conversation, with every message under a parent that is there. */
function isConversation(value) {
  if (typeof value?.id !== "string" || typeof value.title !== "string" || typeof value.messages !== "object") {
    return false;
  }
  const known = (id) => id === null || Object.hasOwn(value.messages, id);
  const isMessage = ([id, message]) =>
    message?.id === id && known(message.parent) && message.parent !== id
    && ["user", "assistant"].includes(message.role) && typeof message.content === "string";
  return value.messages !== null && known(value.leaf) && Object.entries(value.messages).every(isMessage);
}
