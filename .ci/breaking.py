#!/usr/bin/env python3
"""Refuses what would break a client: .ci/breaking.py OLD.json NEW.json, two OpenAPI documents.

`/v1` only grows. A client may have been generated from the old document: it calls by operation id, sends by the old
rules, takes answers by the old schemas (and may check them), and handles the statuses that were named. Exit code 1 and
a line for each break. What this script does not understand has to be equal.
"""

import json
import sys

METHODS = {"get", "put", "post", "delete", "options", "head", "patch", "trace"}
# Words about a schema that no client's code depends on.
REMARKS = {"title", "description", "example", "examples", "deprecated", "externalDocs", "$comment"}
LOWER = {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
UPPER = {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
OPEN_ENUM = "x-extensible-enum"


class Comparison:
    def __init__(self, old, new):
        self.old, self.new = old, new
        self.breaks = []
        self.seen = set()

    def tell(self, at, what):
        self.breaks.append(f"{at}: {what}")

    def documents(self):
        for path, item in self.old["paths"].items():
            for method in METHODS & item.keys():
                at = f"{method.upper()} {path}"
                new = self.new["paths"].get(path, {}).get(method)
                if new is None:
                    self.tell(at, "is gone")
                else:
                    self.operation(at, item[method], new)
        old, new = self.old["components"], self.new["components"]
        for name in old["schemas"].keys() - new["schemas"].keys():
            self.tell(f"schema {name}", "is gone")
        for name, scheme in old.get("securitySchemes", {}).items():
            if bare(scheme) != bare(new.get("securitySchemes", {}).get(name, {})):
                self.tell(f"security scheme {name}", "is another")
        return sorted(self.breaks)

    def operation(self, at, old, new):
        for word in ("operationId", "tags", "security"):
            if old.get(word) != new.get(word):
                self.tell(at, f"{word} was {old.get(word)}, is {new.get(word)}")
        self.parameters(at, old.get("parameters", []), new.get("parameters", []))
        self.body(f"{at} body", old.get("requestBody"), new.get("requestBody"))
        old, new = old["responses"], new["responses"]
        for status in new.keys() - old.keys():
            if status[0] in "23":
                self.tell(f"{at} {status}", "is a success that no client knows of")
        for status, response in old.items():
            if status in new:
                self.response(f"{at} {status}", response, new[status])
            else:
                self.tell(f"{at} {status}", "is gone")

    def parameters(self, at, old, new):
        def named(all_of_them):
            return {(each["in"], each["name"]): each for each in all_of_them}

        old, new = named(old), named(new)
        for key, parameter in new.items():
            if parameter.get("required") and not old.get(key, {}).get("required"):
                self.tell(f"{at} {key[1]}", "has become required")
        for key, parameter in old.items():
            if key not in new:
                self.tell(f"{at} {key[1]}", "is gone")
                continue
            self.schema(f"{at} {key[1]}", parameter["schema"], new[key]["schema"], "sent")

    def body(self, at, old, new):
        if new and new.get("required") and not (old and old.get("required")):
            self.tell(at, "has become required")
        if old and not new:
            self.tell(at, "is gone")
        elif old:
            self.content(at, old["content"], new["content"], "sent")

    def response(self, at, old, new):
        for name, header in old.get("headers", {}).items():
            if name in new.get("headers", {}):
                self.schema(f"{at} {name}", header["schema"], new["headers"][name]["schema"], "got")
            else:
                self.tell(f"{at} {name}", "is gone")
        self.content(at, old.get("content", {}), new.get("content", {}), "got")

    def content(self, at, old, new, way):
        for media, body in old.items():
            if media in new:
                self.schema(at, body["schema"], new[media]["schema"], way)
            else:
                self.tell(f"{at} {media}", "is gone")

    def schema(self, at, old, new, way):
        if (old.get("$ref"), new.get("$ref"), way) in self.seen and "$ref" in old:
            return
        if old.get("$ref") != new.get("$ref"):
            self.tell(at, f"was {old.get('$ref', 'inline')}, is {new.get('$ref', 'inline')}")
        if "$ref" in old:
            self.seen.add((old["$ref"], new.get("$ref"), way))
            at = f"{old['$ref'].rsplit('/')[-1]} as {way}"
        old, new = resolved(self.old, old), resolved(self.new, new)
        for word in sorted((old.keys() | new.keys()) - REMARKS):
            self.keyword(at, word, old.get(word), new.get(word), way)
        self.properties(at, old, new, way)

    def properties(self, at, old, new, way):
        old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
        for name, field in old_fields.items():
            if name in new_fields:
                self.schema(f"{at}.{name}", field, new_fields[name], way)
            else:
                self.tell(f"{at}.{name}", "is gone")
        was, must = set(old.get("required", [])), set(new.get("required", []))
        changed = must - was if way == "sent" else was - must
        for name in changed & (old_fields.keys() | new_fields.keys()):
            self.tell(f"{at}.{name}", f"{'has become' if way == 'sent' else 'is no longer'} required")

    def keyword(self, at, word, old, new, way):
        if word in ("items", "additionalProperties") and isinstance(old, dict) and isinstance(new, dict):
            # Though they read the same: what they refer to may have changed.
            return self.schema(f"{at}[]", old, new, way)
        if word in ("properties", "required") or old == new:
            return
        if word in LOWER or word in UPPER:
            # What was fine to send must stay fine; what comes must not leave the bounds that were told.
            lower = word in LOWER
            narrower = old is None or (new is not None and (new > old if lower else new < old))
            fine = not narrower if way == "sent" else narrower
        elif word == "pattern":
            fine = new is None if way == "sent" else old is None
        elif word == "enum" and old and new:
            fine = set(old) <= set(new) and way == "sent"
        elif word == OPEN_ENUM:
            fine = new is not None and set(old or []) <= set(new)
        elif word == "default":
            fine = way == "got"
        else:
            fine = word.startswith("x-")
        if not fine:
            self.tell(at, f"{word} was {old}, is {new}")


def resolved(document, schema):
    while "$ref" in schema:
        place = document
        for name in schema["$ref"].removeprefix("#/").split("/"):
            place = place.get(name, {})
        schema = place
    return schema


def bare(described):
    return {word: value for word, value in described.items() if word not in REMARKS}


def breaks(old, new):
    return Comparison(old, new).documents()


def main(old, new):
    with open(old) as before, open(new) as after:
        found = breaks(json.load(before), json.load(after))
    for each in found:
        print(each, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
