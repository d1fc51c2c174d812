// A conversation is a tree of messages. Who edits a message, or asks for another answer, adds a sibling of it, and
// nothing is lost; what is shown is the path from the root to the leaf.

/** A new id. (`crypto.randomUUID` is for pages with TLS only.) */
function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function create() {
  return { id: newId(), title: "", updated: Date.now(), leaf: null, messages: {} };
}

/** Adds a message under `parent`, and makes it the leaf. */
export function add(conversation, parent, message) {
  const added = { id: newId(), parent, at: Date.now(), ...message };
  conversation.messages[added.id] = added;
  conversation.leaf = added.id;
  conversation.updated = added.at;
  if (!conversation.title && message.role === "user") {
    conversation.title = titleOf(message);
  }
  return added;
}

/** The messages from the first one down to `leaf`. */
export function path(conversation, leaf = conversation.leaf) {
  const messages = [];
  // An import may have a circle in it, which ends here.
  const most = Object.keys(conversation.messages).length;
  for (let id = leaf; id !== null && messages.length < most; id = conversation.messages[id].parent) {
    messages.unshift(conversation.messages[id]);
  }
  return messages;
}

/** The message and all others in its place, the oldest first. */
export function versions(conversation, message) {
  return Object.values(conversation.messages)
    .filter((other) => other.parent === message.parent)
    .sort((a, b) => a.at - b.at);
}

/** Shows another version, with the newest messages after it. */
export function choose(conversation, message) {
  const seen = new Set();
  let leaf = message;
  while (!seen.has(leaf.id)) {
    seen.add(leaf.id);
    conversation.leaf = leaf.id;
    const after = Object.values(conversation.messages).filter((other) => other.parent === leaf.id);
    leaf = after.sort((a, b) => a.at - b.at).at(-1) ?? leaf;
  }
}

function titleOf(message) {
  const text = message.content.trim() || message.files?.[0]?.name || "";
  const line = text.split("\n", 1)[0];
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}
