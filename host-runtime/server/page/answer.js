// An answer while it comes: a request made of a conversation, and the message that its stream fills.

import * as api from "./api.js";
import * as models from "./models.js";
import { path } from "./conversation.js";

/** Least time between two looks at an answer that grows, in milliseconds. */
const LOOK = 60;

/** A message as the model gets it: with its pictures and the text of its files, and without thoughts. */
function sent(message) {
  const files = message.files ?? [];
  const pictures = files.filter(({ picture }) => picture);
  const texts = files.filter(({ picture }) => !picture).map(({ name, text }) => {
    // No line of the file ends the block that it stands in.
    const longest = Math.max(2, ...Array.from(text.matchAll(/`+/g), (ticks) => ticks[0].length));
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  const text = [...texts, message.content].filter(Boolean).join("\n\n");
  if (pictures.length === 0) {
    return { role: message.role, content: text };
  }
  const parts = pictures.map(({ picture }) => ({ type: "image_url", image_url: { url: picture } }));
  return { role: message.role, content: text ? [...parts, { type: "text", text }] : parts };
}

function request(conversation, message, settings) {
  const before = path(conversation, message.parent).filter((other) => other.content || other.files?.length);
  const messages = before.map(sent);
  if (settings.system.trim()) {
    messages.unshift({ role: "system", content: settings.system });
  }
  const body = { ...models.named(), messages, stream: true, token_origins: true };
  for (const name of ["temperature", "top_k", "top_p", "max_tokens"]) {
    if (settings[name] !== "") {
      body[name] = Number(settings[name]);
    }
  }
  if (settings.thinking) {
    body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  }
  return body;
}

/**
 * Fills `message` with the answer to the messages before it. `grown` is called now and then while it comes. When this
 * returns, `message.state` says how it ended: done, length, stopped or failed.
 */
export async function write(conversation, message, settings, signal, grown) {
  Object.assign(message, { state: "running", content: "", thoughts: "", tokens: [], timings: null, error: null });
  let shown = 0;
  try {
    const body = request(conversation, message, settings);
    for await (const chunk of api.events("v1/chat/completions", body, conversation.id, signal)) {
      const choice = chunk.choices?.[0];
      message.content += choice?.delta?.content ?? "";
      message.thoughts += choice?.delta?.reasoning_content ?? "";
      for (const { token, drafted, rejected } of choice?.token_origins ?? []) {
        message.tokens.push([token, Number(drafted), rejected]);
      }
      message.timings = chunk.timings ?? message.timings;
      if (choice?.finish_reason) {
        message.state = choice.finish_reason === "length" ? "length" : "done";
      }
      if (performance.now() - shown > LOOK) {
        shown = performance.now();
        grown();
        // The browser paints, and hears of clicks, between two pieces of work.
        await new Promise((resume) => setTimeout(resume));
      }
    }
  } catch (error) {
    if (signal.aborted) {
      message.state = "stopped";
    } else {
      message.state = "failed";
      message.error = error.message;
    }
  }
}

/** Drafts of an answer: how many were verified and accepted. */
export function drafts(message) {
  if (message.timings) {
    return { verified: message.timings.draft_n ?? 0, accepted: message.timings.draft_n_accepted ?? 0 };
  }
  const accepted = message.tokens.reduce((sum, [, drafted]) => sum + drafted, 0);
  return { accepted, verified: message.tokens.reduce((sum, [, , rejected]) => sum + rejected, accepted) };
}
