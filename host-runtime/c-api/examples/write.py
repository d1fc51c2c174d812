"""Goes on with a text, piece by piece, by ctypes alone:

    cargo build --release -p hexflash-c
    python3 host-runtime/c-api/examples/write.py target/release/libhexflash_c.so \
        models/tiny-hybrid-q8_0.gguf "#### pub fn push(&mut self" 64
"""

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_void_p

ABI_VERSION, OK, END = 1, 0, 1


def load(path):
    """The library, with the types of the functions that are used here."""
    library = ctypes.CDLL(path)
    place = POINTER(c_void_p)
    for name, result, arguments in [
        ("open", c_int32, [c_uint32, c_char_p, c_char_p, place]),
        ("close", None, [c_void_p]),
        ("generate", c_int32, [c_void_p, c_char_p, c_char_p, place]),
        ("next", c_int32, [c_void_p, place, POINTER(c_size_t)]),
        ("figures", c_int32, [c_void_p, place]),
        ("free_generation", None, [c_void_p]),
        ("free_text", None, [c_void_p]),
        ("last_error_text", c_char_p, []),
    ]:
        function = getattr(library, f"hexflash_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def main(path, model_path, prompt, tokens="64"):
    hexflash = load(path)

    def check(status):
        if status < 0:
            sys.exit(hexflash.hexflash_last_error_text().decode())
        return status

    options = json.dumps({"context": 512, "temperature": 0}).encode()
    request = json.dumps({"max_tokens": int(tokens)}).encode()
    model, generation, piece, figures = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    length = c_size_t()

    check(hexflash.hexflash_open(ABI_VERSION, model_path.encode(), options, byref(model)))
    check(hexflash.hexflash_generate(model, prompt.encode(), request, byref(generation)))
    # A piece is whole characters.
    while check(hexflash.hexflash_next(generation, byref(piece), byref(length))) == OK:
        sys.stdout.buffer.write(ctypes.string_at(piece, length.value))
        sys.stdout.flush()

    check(hexflash.hexflash_figures(generation, byref(figures)))
    print(json.loads(ctypes.string_at(figures))["stats"], file=sys.stderr)
    hexflash.hexflash_free_text(figures)
    hexflash.hexflash_free_generation(generation)
    hexflash.hexflash_close(model)


if __name__ == "__main__":
    main(*sys.argv[1:])
