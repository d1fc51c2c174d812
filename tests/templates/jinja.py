"""What Jinja2, set up as transformers sets it up, makes of templates: `python jinja.py RESULTS NAME=FOLDER...`.

RESULTS gets a line of JSON for each template of the folders: its source, and what Jinja makes of it and of each
conversation of `conversations.json` beside this file, a text or an error. What is in `expressions.json`, each
expression with each value of its kind, is a template, too, and meets a conversation that has no tools. `host-runtime/tests/templates/public.rs`
compares. The options are those of `transformers.utils.chat_template_utils`, written anew from its documentation.
"""

import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

# What `strftime_now` tells, in seconds since 1970; the Rust side has the same.
NOW = 1_785_000_000


class Generation(jinja2.ext.Extension):
    """The block `generation`, which marks answers for training and changes no text."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return made


def outcome(template, conversation):
    given = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>"}
    try:
        return {"text": template.render(**(given | conversation))}
    except jinja2.exceptions.TemplateError as error:
        refused = type(error) is jinja2.exceptions.TemplateError
        return {"refused" if refused else "error": str(error)}
    except Exception as error:  # What Python refuses is an error of the template, whatever its kind.
        return {"error": f"{type(error).__name__}: {error}"}


def read(name):
    return json.loads(pathlib.Path(__file__).with_name(name).read_text("utf-8"))


def published(folders):
    """Names and sources of the templates in the folders."""
    for prefix, folder in (folder.split("=", 1) for folder in folders):
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            # Line breaks as they are: Jinja has its own way with them.
            yield f"{prefix}/{path.stem}", path.read_bytes().decode("utf-8")


def small():
    """Templates of an expression each."""
    every = read("expressions.json")
    yield from every["templates"]
    for kind, values in every["values"].items():
        for value in values:
            for expression in every["expressions"]["any"] + every["expressions"].get(kind, []):
                yield "{{ " + expression.replace("VALUE", f"({value})") + " }}"


def compared(jinja, name, source, conversations):
    """What Jinja makes of a template."""
    try:
        template = jinja.from_string(source)
    except jinja2.exceptions.TemplateSyntaxError as error:
        return {"template": name, "source": source, "invalid": str(error)}
    results = {key: outcome(template, value) for key, value in conversations.items()}
    return {"template": name, "source": source, "results": results}


def main(results, folders):
    conversations, jinja = read("conversations.json"), environment()
    plain = {"plain": conversations["plain"]}
    lines = [compared(jinja, *each, conversations) for each in published(folders)]
    lines += [compared(jinja, f"expression {source}", source, plain) for source in small()]
    with open(results, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
