// The server through OpenAI's client for JavaScript.

import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.HEXFLASH_URL}/v1`, apiKey: "secret", maxRetries: 0 });
const messages = [{ role: "user", content: "Tell me of the sea." }];
const ask = { model: "any", messages, max_tokens: 12, temperature: 0 };
const schema = {
  type: "object",
  properties: { n: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["n"],
  additionalProperties: false,
};
const isInRange = (n) => Number.isInteger(n) && n >= 0 && n <= 99;

test("a stream is the chat in pieces", async () => {
  const whole = await client.chat.completions.create(ask);
  assert.equal(whole.usage.completion_tokens, 12);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) {
    text += chunk.choices[0].delta.content ?? "";
  }
  assert.equal(text, whole.choices[0].message.content);
  const response = await client.responses.create(
    { model: "any", input: messages, max_output_tokens: 12, temperature: 0 });
  assert.equal(response.output_text, text);
});

test("tools are called, schemas are kept, probabilities are told", async () => {
  const tools = [{ type: "function", function: { name: "count", parameters: schema } }];
  const called = await client.chat.completions.create(
    { ...ask, max_tokens: 200, tools, tool_choice: "required" });
  const [call] = called.choices[0].message.tool_calls;
  assert.equal(call.function.name, "count");
  assert.ok(isInRange(JSON.parse(call.function.arguments).n));
  const form = { type: "json_schema", json_schema: { name: "x", schema } };
  const formed = await client.chat.completions.create({ ...ask, max_tokens: 200, response_format: form });
  assert.ok(isInRange(JSON.parse(formed.choices[0].message.content).n));
  const told = await client.chat.completions.create({ ...ask, logprobs: true, top_logprobs: 2 });
  assert.equal(told.choices[0].logprobs.content.length, 12);
});

test("errors are those of the library, and a stream can be aborted", async () => {
  await assert.rejects(client.chat.completions.create({ ...ask, max_tokens: -5 }), OpenAI.BadRequestError);
  await assert.rejects(
    client.withOptions({ apiKey: "wrong" }).chat.completions.create(ask), OpenAI.AuthenticationError);
  for (let i = 0; i < 8; i++) {
    const stream = await client.chat.completions.create({ ...ask, max_tokens: 400, stream: true, ignore_eos: true });
    for await (const _ of stream) {
      stream.controller.abort();
      break;
    }
  }
  assert.equal((await client.chat.completions.create(ask)).usage.completion_tokens, 12);
});
