#!/usr/bin/env python3
"""What llama-server's tests start in its place: `hexflash serve`, with one of our models.

The tests name models of a hub. Each of them that a small text model can stand for is the model of this
repository here; all others are refused. HEXFLASH is the program, HEXFLASH_ROOT the repository.
"""

import os
import sys
from pathlib import Path

MODEL = "models/tiny-hybrid-q8_0.gguf"
# Its context: llama-server warns where more is asked for, and goes on.
TRAINED = 512
# What the tests call their small text models.
STANDS_FOR = {"ggml-org/test-model-stories260K", "ggml-org/test-model-stories260K-infill"}

# Flags of llama-server that change nothing here, and whether a value follows.
NOTHING = {
    "--offline": False,
    "--cont-batching": False,
    "--kv-unified": False,
    "--no-cache-idle-slots": False,
    "--no-jinja": False,
    "--verbose": False,
    "--embedding": False,
    "--ubatch-size": True,
    "--threads": True,
    "--n-gpu-layers": True,
    "--hf-file": True,
    "-fa": True,
}


def flags(given: list[str]) -> list[str]:
    """The flags of `hexflash serve` that mean the same."""
    given, ours, template, context, parallel = iter(given), [], None, None, 1
    unified = False
    for flag in given:
        if flag == "--hf-repo":
            if (repo := next(given)) not in STANDS_FOR:
                sys.exit(f"no model of this repository stands for {repo}")
        elif flag == "--ctx-size":
            context = int(next(given))
        elif flag == "--parallel":
            parallel = int(next(given))
        elif flag in ("--chat-template-file", "--chat-template"):
            template = next(given)
        elif flag == "--reasoning":
            # llama-server tells templates that models are to think unless they are told not to.
            ours += [flag, "off" if next(given) == "off" else "on"]
        elif flag in NOTHING:
            unified |= flag == "--kv-unified"
            if NOTHING[flag]:
                next(given)
        else:
            ours.append(flag)
    # Sequences share llama-server's context in equal parts, unless each may take all of it.
    if context is not None:
        ours += ["--ctx-size", str(min(context if unified else context // parallel, TRAINED))]
    # llama-server has a template for models that come without one, as this does.
    own = Path(__file__).parent.parent / "clients/template.jinja"
    return [*ours, "--parallel", str(parallel), "--chat-template", template or str(own)]


def main() -> None:
    program = os.environ["HEXFLASH"]
    model = Path(os.environ["HEXFLASH_ROOT"]) / MODEL
    os.execv(program, [program, "serve", "--model", str(model), *flags(sys.argv[1:])])


main()
