"""The server through Anthropic's client for Python."""

import os
import unittest

import anthropic

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}
ASK = {"model": "any", "max_tokens": 12, "messages": [{"role": "user", "content": "Tell me of the sea."}]}


class Anthropic(unittest.TestCase):
    def setUp(self):
        url = os.environ["HEXFLASH_URL"]
        self.client = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0)
        self.addCleanup(self.client.close)

    def test_a_stream_is_the_message_in_pieces(self):
        ask = ASK | {"system": "Be brief.", "extra_body": {"temperature": 0}}
        whole = self.client.messages.create(**ask)
        self.assertEqual((whole.stop_reason, whole.usage.output_tokens), ("max_tokens", 12))
        with self.client.messages.stream(**ask) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual((final.content[0].text, final.usage.output_tokens), (text, 12))

    def test_tools_are_used_and_their_results_are_read(self):
        ask = ASK | {
            "max_tokens": 200,
            "tools": [{"name": "count", "description": "a tool", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
            # Drawn blanks could fill all tokens.
            "extra_body": {"temperature": 0},
        }
        answer = self.client.messages.create(**ask)
        [block] = answer.content
        self.assertEqual((answer.stop_reason, block.type, block.name), ("tool_use", "tool_use", "count"))
        self.assertIn(block.input["n"], range(100))
        with self.client.messages.stream(**ask) as stream:
            [streamed] = stream.get_final_message().content
        self.assertIn(streamed.input["n"], range(100))
        result = {"type": "tool_result", "tool_use_id": block.id, "content": "three"}
        turns = [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
        # Left to itself, so small a model may have nothing to say.
        asked = ASK | {"messages": ASK["messages"] + turns, "extra_body": {"ignore_eos": True}}
        following = self.client.messages.create(**asked)
        self.assertTrue(following.content[0].text)

    def test_tokens_are_counted_as_they_are_read(self):
        counted = self.client.messages.count_tokens(model="any", messages=ASK["messages"])
        usage = self.client.messages.create(**ASK).usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_errors_are_those_of_the_library(self):
        image = {"type": "image", "source": {"type": "url", "url": "https://example.org/x.png"}}
        with self.assertRaises(anthropic.BadRequestError) as raised:
            self.client.messages.create(**(ASK | {"messages": [{"role": "user", "content": [image]}]}))
        self.assertEqual(raised.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("image", raised.exception.body["error"]["message"])
        with self.assertRaises(anthropic.AuthenticationError):
            self.client.with_options(api_key="wrong").messages.create(**ASK)


if __name__ == "__main__":
    unittest.main()
