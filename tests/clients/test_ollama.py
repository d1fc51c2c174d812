"""The server through Ollama's client for Python."""

import os
import unittest

import ollama

MODEL = "any"
SEA = [{"role": "user", "content": "Tell me of the sea."}]
OPTIONS = {"num_predict": 12, "temperature": 0}
KEY = {"authorization": "Bearer secret"}
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}


class Ollama(unittest.TestCase):
    def setUp(self):
        self.client = ollama.Client(host=os.environ["HEXFLASH_URL"], headers=KEY)
        self.addCleanup(self.client.close)

    def test_a_stream_is_the_chat_in_pieces(self):
        whole = self.client.chat(MODEL, SEA, options=OPTIONS)
        self.assertEqual((whole.done_reason, whole.eval_count), ("length", 12))
        pieces = list(self.client.chat(MODEL, SEA, options=OPTIONS, stream=True))
        self.assertEqual("".join(piece.message.content for piece in pieces), whole.message.content)
        self.assertTrue(pieces[-1].done and pieces[-1].total_duration > 0)

    def test_a_prompt_goes_on(self):
        whole = self.client.generate(MODEL, "def push(", raw=True, options=OPTIONS)
        pieces = list(self.client.generate(MODEL, "def push(", raw=True, options=OPTIONS, stream=True))
        self.assertEqual("".join(piece.response for piece in pieces), whole.response)

    def test_an_answer_keeps_to_a_schema(self):
        options = OPTIONS | {"num_predict": 60}
        answer = self.client.chat(MODEL, SEA, options=options, format=SCHEMA)
        self.assertRegex(answer.message.content, r'^\{\s*"n"\s*:\s*\d{1,2}\s*\}$')

    def test_the_model_is_found_and_shown(self):
        [model] = self.client.list().models
        self.assertEqual(self.client.ps().models[0].model, model.model)
        shown = self.client.show(model.model)
        self.assertIn("completion", shown.capabilities)
        self.assertEqual(shown.modelinfo["general.architecture"], model.details.family)

    def test_an_error_has_its_words(self):
        with self.assertRaises(ollama.ResponseError) as caught:
            self.client.chat(MODEL, SEA, options={"mirostat": 2})
        self.assertEqual(caught.exception.status_code, 400)
        self.assertIn("mirostat", caught.exception.error)


class Vectors(unittest.TestCase):
    def test_texts_have_vectors(self):
        client = ollama.Client(host=os.environ["HEXFLASH_VECTORS_URL"], headers=KEY)
        self.addCleanup(client.close)
        both = client.embed(MODEL, ["import os", "a"])
        self.assertEqual(len(both.embeddings), 2)
        self.assertEqual(client.embed(MODEL, "a").embeddings[0], both.embeddings[1])
        self.assertEqual(client.embeddings(MODEL, "a").embedding, both.embeddings[1])
