"""The server through OpenAI's client for Python."""

import json
import os
import unittest

import openai

MODEL = "any"
SEA = [{"role": "user", "content": "Tell me of the sea."}]
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "count", "description": "a tool", "parameters": SCHEMA}}


class OpenAi(unittest.TestCase):
    def setUp(self):
        url = os.environ["HEXFLASH_URL"]
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, **settings):
        settings = {"messages": SEA, "max_tokens": 12, "temperature": 0} | settings
        return self.client.chat.completions.create(model=MODEL, **settings)

    def test_a_stream_is_the_chat_in_pieces(self):
        whole = self.chat()
        self.assertEqual((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 12))
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, 12)

    def test_the_model_is_found_by_its_name(self):
        [model] = self.client.models.list().data
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody/nothing")

    def test_tools_are_called_and_their_results_are_read(self):
        ask = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 200}
        choice = self.chat(**ask).choices[0]
        [call] = choice.message.tool_calls
        self.assertEqual((choice.finish_reason, call.function.name), ("tool_calls", "count"))
        self.assertIn(json.loads(call.function.arguments)["n"], range(100))
        deltas = [d for c in self.chat(stream=True, **ask) for d in c.choices[0].delta.tool_calls or []]
        self.assertEqual("".join(d.function.arguments for d in deltas), call.function.arguments)
        result = {"role": "tool", "tool_call_id": call.id, "content": "three"}
        answer = self.chat(messages=[*SEA, choice.message, result])
        self.assertTrue(answer.choices[0].message.content)

    def test_a_schema_is_kept(self):
        schema = {"name": "x", "strict": True, "schema": SCHEMA}
        form = {"type": "json_schema", "json_schema": schema}
        answer = self.chat(response_format=form, max_tokens=200)
        self.assertIn(json.loads(answer.choices[0].message.content)["n"], range(100))

    def test_probabilities_come_with_alternatives(self):
        tokens = self.chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        self.assertEqual([len(token.top_logprobs) for token in tokens], [3] * 12)
        self.assertTrue(all(token.logprob == token.top_logprobs[0].logprob for token in tokens))

    def test_errors_are_those_of_the_library(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(max_tokens=-5)
        self.assertIn("max_tokens", raised.exception.message)
        with self.assertRaises(openai.BadRequestError):
            self.chat(messages=[{"role": "user", "content": "word " * 5000}])
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="wrong").chat.completions.create(model=MODEL, messages=SEA)
        with self.assertRaises(openai.NotFoundError):
            self.client.images.generate(prompt="x")

    def test_a_response_is_the_chat_in_another_form(self):
        text = self.chat().choices[0].message.content
        settings = {"model": MODEL, "input": SEA, "max_output_tokens": 12, "temperature": 0}
        whole = self.client.responses.create(**settings)
        self.assertEqual((whole.output_text, whole.status), (text, "incomplete"))
        events = list(self.client.responses.create(stream=True, **settings))
        deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(deltas), text)
        self.assertEqual(events[-1].response.output_text, text)
        with self.assertRaises(openai.BadRequestError):
            self.client.responses.create(previous_response_id="resp_1", **settings)

    def test_a_response_calls_a_function(self):
        tool = {"type": "function", "name": "count", "parameters": SCHEMA, "strict": True}
        answer = self.client.responses.create(
            model=MODEL, input="How many?", tools=[tool], tool_choice="required", max_output_tokens=200,
            temperature=0)  # Drawn blanks could fill all tokens.
        [call] = answer.output
        self.assertEqual((call.type, call.name), ("function_call", "count"))
        self.assertIn(json.loads(call.arguments)["n"], range(100))

    def test_a_stream_that_is_closed_frees_its_sequence(self):
        # There are four sequences; each of these would keep one for 400 tokens.
        for _ in range(8):
            with self.chat(max_tokens=400, stream=True, extra_body={"ignore_eos": True}) as stream:
                next(iter(stream))
        self.assertEqual(self.chat().usage.completion_tokens, 12)


if __name__ == "__main__":
    unittest.main()
