// A JSON schema as a grammar: each text of the grammar is JSON that validates against the schema.
//
// Supported: type (one or several), properties, required, additionalProperties, items, minItems, maxItems, minLength,
// maxLength, enum, const, anyOf, allOf with one schema, $ref within the document, true and {}. Annotations (title,
// description, default, examples, $comment, …) are allowed. Anything else is refused by name.
//
// Properties come in the order of the schema. Beyond them an object has none, even if the schema allows it; one without
// the keyword properties is a map with any keys.
#pragma once

#include <string>
#include <vector>

#include "megatrain/grammar/grammar.h"
#include "megatrain/io/json.h"

namespace megatrain {

// {"type": "json_object"}: any object.
Grammar any_object_grammar();

// Throws Error(bad_input), which names the place in the schema ("at properties/age: ").
Grammar schema_grammar(const nlohmann::ordered_json& schema);

// Texts with a value between them that matches a schema.
struct FramedSchema {
  std::string before;
  nlohmann::ordered_json schema;
  std::string after;
};
struct CallGrammar {
  std::vector<FramedSchema> calls;          // one of these
  std::string opening, separator, closing;  // around all calls, and between two
  // Text may come before the first call, and instead of it: anything without `opening`.
  bool optional = false;
  bool several = false;
};
Grammar call_grammar(const CallGrammar& calls);

}  // namespace megatrain
