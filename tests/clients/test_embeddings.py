"""Vectors of texts through OpenAI's client for Python."""

import math
import os
import unittest

import openai

TEXTS = ["import os", "def push(self, x):", "a"]


class Embeddings(unittest.TestCase):
    def setUp(self):
        url = os.environ["HEXFLASH_VECTORS_URL"]
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="secret", max_retries=0)
        self.addCleanup(self.client.close)

    def vectors(self, texts, **options):
        answer = self.client.embeddings.create(model="any", input=texts, **options)
        self.assertEqual([one.index for one in answer.data], list(range(len(answer.data))))
        self.assertGreater(answer.usage.total_tokens, 0)
        return [one.embedding for one in answer.data]

    def test_vectors_have_length_one_and_the_same_values_in_both_forms(self):
        # Unless told otherwise, the client asks for base64 and reads it.
        by_bytes = self.vectors(TEXTS)
        for vector, listed in zip(by_bytes, self.vectors(TEXTS, encoding_format="float"), strict=True):
            self.assertAlmostEqual(math.hypot(*vector), 1.0, places=5)
            for a, b in zip(vector, listed, strict=True):
                self.assertAlmostEqual(a, b, places=6)

    def test_a_text_has_the_same_vector_alone(self):
        self.assertEqual(self.vectors(TEXTS)[1:2], self.vectors(TEXTS[1]))
