// Requests to the server that this page came from. Addresses are relative, so that a proxy may serve it below a path.

import * as store from "./store.js";

const BASE = new URL(".", document.baseURI);

/** A request that the server has answered with an error. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let askForKey = async () => false;

/** `ask(wasWrong)` is called when the server wants a key, and tells whether there is one now. */
export function onKeyWanted(ask) {
  askForKey = ask;
}

async function send(path, body, { signal, conversation } = {}) {
  for (;;) {
    const key = store.key();
    const headers = {};
    if (key) {
      headers.authorization = `Bearer ${key}`;
    }
    if (body) {
      headers["content-type"] = "application/json";
    }
    if (conversation) {
      // For a router in front of several servers.
      headers["x-conversation-id"] = conversation;
    }
    let response;
    try {
      const method = body ? "POST" : "GET";
      response = await fetch(new URL(path, BASE), { method, headers, signal, body: body && JSON.stringify(body) });
    } catch (error) {
      if (signal?.aborted) {
        throw error;
      }
      throw new Refused(0, "The server cannot be reached. Is it running?");
    }
    if (response.ok) {
      return response;
    }
    if (response.status === 401 && await askForKey(key)) {
      continue;
    }
    const told = await response.json().catch(() => null);
    throw new Refused(response.status, told?.error?.message ?? `The server has answered with ${response.status}.`);
  }
}

export async function json(path, body) {
  return (await send(path, body)).json();
}

export async function text(path) {
  return (await send(path)).text();
}

/** The events of a stream of a `conversation`, parsed, until it ends or `signal` does. */
export async function* events(path, body, conversation, signal) {
  const response = await send(path, body, { conversation, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      throw new Refused(0, "The connection has ended in the middle of the answer.");
    }
    held += value;
    const complete = held.split("\n\n");
    held = complete.pop();
    for (const event of complete) {
      // Lines that begin with a colon say that the server is alive.
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") {
        return;
      }
      if (data) {
        const parsed = JSON.parse(data);
        if (parsed.error) {
          throw new Refused(parsed.error.code, parsed.error.message);
        }
        yield parsed;
      }
    }
  }
}
