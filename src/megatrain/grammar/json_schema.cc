#include "megatrain/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/grammar/json_grammar.h"
#include "megatrain/io/file.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostCount = 10'000;  // of minItems, maxLength, …
constexpr int kMostLevels = 256;        // of schemas in schemas, those behind $ref included
constexpr size_t kMostNames = 1000;     // of an object that $ref goes through: lookup is linear

// They say nothing about which values are valid.
constexpr std::string_view kAnnotations[] = {"title",    "description", "default",    "examples",
                                             "$comment", "$schema",     "$id",        "$defs",
                                             "readOnly", "writeOnly",   "deprecated", "definitions"};

constexpr std::string_view kTypes[] = {"object", "array", "string", "number", "integer", "boolean", "null"};

bool is_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();
  if (type == "boolean") return value.is_boolean();
  return value.is_null();
}

// Whether two values are equal and would be written alike; 1 and 1.0 are not.
std::string written(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

class SchemaReader {
 public:
  SchemaReader(GrammarBuilder& builder, JsonGrammar& json, const Json& root)
      : builder_(builder), json_(json), root_(root) {}

  // The rule of the whole schema.
  int32_t read() { return rule_of(root_, ""); }

 private:
  [[noreturn]] static void refuse(const std::string& where, const std::string& why) {
    fail_input(fmt::format("{}{}", where.empty() ? "" : fmt::format("at {}: ", printable(where)), why));
  }
  static std::string inside(const std::string& where, const std::string& key) {
    return where.empty() ? key : where + "/" + key;
  }

  // The keywords of a schema; each is taken once, and what is left is refused.
  class Keywords {
   public:
    Keywords(const Json& schema, std::string where) : schema_(schema), where_(std::move(where)) {}
    const Json* take(const char* name) {
      const auto found = schema_.find(name);
      if (found == schema_.end()) return nullptr;
      taken_.insert(name);
      return &*found;
    }
    bool has(const char* name) const { return schema_.contains(name); }
    std::optional<int64_t> count(const char* name) {
      const Json* value = take(name);
      if (!value) return std::nullopt;
      if (!value->is_number_integer() || value->is_number_float() || *value < 0 || *value > kMostCount)
        refuse(where_, fmt::format("{} is not a whole number from 0 to {}", name, kMostCount));
      return value->get<int64_t>();
    }
    void none_left() const {
      for (const auto& [name, value] : schema_.items()) {
        if (taken_.contains(name) || std::ranges::find(kAnnotations, name) != std::end(kAnnotations)) continue;
        refuse(where_, fmt::format("the keyword {} is not supported here{}", printable(name),
                                   name == "oneOf" ? "; use anyOf" : ""));
      }
    }

   private:
    const Json& schema_;
    std::string where_;
    std::set<std::string> taken_;
  };

  // A rule for the schema at `where`. Equal schemas share one.
  int32_t rule_of(const Json& schema, const std::string& where) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) refuse(where, "the schema is false, which nothing matches");
      return json_.value();
    }
    if (!schema.is_object()) refuse(where, "a schema has to be an object or true");
    const auto [known, fresh] = rules_.try_emplace(&schema, -1);
    if (!fresh) return known->second;
    const int32_t rule = known->second = builder_.new_rule();
    if (++level_ > kMostLevels)
      refuse(where, fmt::format("the schema nests more than {} levels, those behind $ref included", kMostLevels));
    builder_.set_rule(rule, read_schema(schema, where));
    --level_;
    return rule;
  }
  int32_t call(const Json& schema, const std::string& where) {
    return builder_.call(rule_of(schema, where), Grammar::kEnd);
  }

  int32_t read_schema(const Json& schema, const std::string& where) {
    Keywords keywords(schema, where);
    int32_t begin = -1;
    if (const Json* reference = keywords.take("$ref")) {
      begin = call(referred(*reference, where), where);
    } else if (const Json* choices = keywords.take("anyOf")) {
      begin = any_of(*choices, inside(where, "anyOf"));
    } else if (const Json* all = keywords.take("allOf")) {
      if (!all->is_array() || all->size() != 1) refuse(where, "allOf is supported with one schema in it");
      begin = call(all->front(), inside(where, "allOf/0"));
    } else {
      begin = of_types(keywords, where);
    }
    keywords.none_left();
    return begin;
  }

  int32_t any_of(const Json& choices, const std::string& where) {
    if (!choices.is_array() || choices.empty()) refuse(where, "anyOf has to be a list of schemas");
    std::vector<int32_t> begins;
    for (size_t i = 0; i < choices.size(); ++i) begins.push_back(call(choices[i], inside(where, std::to_string(i))));
    return builder_.choose(begins);
  }

  const Json& referred(const Json& reference, const std::string& where) const {
    if (!reference.is_string() || !reference.get_ref<const std::string&>().starts_with('#'))
      refuse(where, "$ref has to begin with '#': schemas elsewhere are not read");
    const std::string& path = reference.get_ref<const std::string&>();
    const Json* at = &root_;
    for (size_t begin = 1; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin + 1), path.size());
      std::string key;
      for (size_t i = begin + 1; i < end; ++i) {
        const bool escape = path[i] == '~' && i + 1 < end && (path[i + 1] == '0' || path[i + 1] == '1');
        key += escape ? (path[++i] == '0' ? '~' : '/') : path[i];
      }
      if (at->size() > kMostNames) refuse(where, fmt::format("$ref goes through more than {} entries", kMostNames));
      if (path[begin] != '/' || !at->is_object() || !at->contains(key))
        refuse(where, fmt::format("$ref is {}, which the schema does not have", printable(path)));
      at = &at->at(key);
      begin = end;
    }
    return *at;
  }

  std::vector<std::string> types_of(Keywords& keywords, const std::string& where) {
    const Json* given = keywords.take("type");
    std::vector<std::string> types;
    if (given) {
      for (const Json& type : given->is_array() ? *given : Json::array({*given})) {
        if (!type.is_string() || std::ranges::find(kTypes, type.get<std::string>()) == std::end(kTypes))
          refuse(where, fmt::format("type is {}; expected one of object, array, string, number, integer, boolean, null",
                                    printable(written(type))));
        types.push_back(type.get<std::string>());
      }
      if (types.empty()) refuse(where, "type is an empty list");
      return types;
    }
    if (keywords.has("properties") || keywords.has("required") || keywords.has("additionalProperties"))
      types = {"object"};
    else if (keywords.has("items") || keywords.has("minItems") || keywords.has("maxItems"))
      types = {"array"};
    else if (keywords.has("minLength") || keywords.has("maxLength"))
      types = {"string"};
    return types;
  }

  int32_t of_types(Keywords& keywords, const std::string& where) {
    const std::vector<std::string> types = types_of(keywords, where);
    if (const Json* value = keywords.take("const")) {
      if (keywords.take("enum")) refuse(where, "const and enum together are not supported");
      return of_values(Json::array({*value}), types, where);
    }
    if (const Json* values = keywords.take("enum")) return of_values(*values, types, where);
    if (types.empty()) return builder_.call(json_.value(), Grammar::kEnd);
    std::vector<int32_t> begins;
    for (const std::string& type : types) begins.push_back(of_type(type, keywords, where));
    return builder_.choose(begins);
  }

  int32_t of_values(const Json& values, const std::vector<std::string>& types, const std::string& where) {
    if (!values.is_array() || values.empty()) refuse(where, "enum has to be a list of values");
    std::vector<std::string> texts;
    for (const Json& value : values) {
      const auto fits = [&](const std::string& type) { return is_type(value, type); };
      if (types.empty() || std::ranges::any_of(types, fits)) texts.push_back(written(value));
    }
    if (texts.empty()) refuse(where, "no value of enum or const has the type");
    return builder_.one_of(std::move(texts), Grammar::kEnd);
  }

  int32_t of_type(const std::string& type, Keywords& keywords, const std::string& where) {
    if (type == "object") return object(keywords, where);
    if (type == "array") return array(keywords, where);
    if (type == "string") {
      const std::optional<int64_t> least = keywords.count("minLength"), most = keywords.count("maxLength");
      if (!least && !most) return builder_.call(json_.string(), Grammar::kEnd);
      if (most && *most < least.value_or(0)) refuse(where, "maxLength is below minLength");
      return json_.string_of(least.value_or(0), most, Grammar::kEnd);
    }
    const int32_t rule = type == "number"    ? json_.number()
                         : type == "integer" ? json_.integer()
                         : type == "boolean" ? json_.boolean()
                                             : json_.null();
    return builder_.call(rule, Grammar::kEnd);
  }

  int32_t array(Keywords& keywords, const std::string& where) {
    const Json* items = keywords.take("items");
    const std::optional<int64_t> least = keywords.count("minItems"), most = keywords.count("maxItems");
    if (most && *most < least.value_or(0)) refuse(where, "maxItems is below minItems");
    const int32_t item = items ? rule_of(*items, inside(where, "items")) : json_.value();
    return json_.list_of(item, least.value_or(0), most, Grammar::kEnd);
  }

  struct Property {
    std::string name;
    int32_t rule;
    bool required;
  };

  std::vector<Property> properties_of(Keywords& keywords, const std::string& where) {
    const Json* given = keywords.take("properties");
    const Json* required = keywords.take("required");
    if (given && !given->is_object()) refuse(where, "properties has to be an object");
    std::vector<std::string> needed;
    for (const Json& name : required ? *required : Json::array()) {
      if (!required->is_array() || !name.is_string()) refuse(where, "required has to be a list of strings");
      needed.push_back(name.get<std::string>());
    }
    std::vector<Property> properties;
    std::set<std::string> names;
    const std::set<std::string> all_needed(needed.begin(), needed.end());
    const Json none = Json::object();
    for (const auto& [name, schema] : (given ? *given : none).items()) {
      names.insert(name);
      properties.push_back({.name = name,
                            .rule = rule_of(schema, inside(inside(where, "properties"), name)),
                            .required = all_needed.contains(name)});
    }
    for (const std::string& name : needed)
      if (names.insert(name).second) properties.push_back({.name = name, .rule = json_.value(), .required = true});
    return properties;
  }

  int32_t object(Keywords& keywords, const std::string& where) {
    const std::vector<Property> properties = properties_of(keywords, where);
    const Json* more = keywords.take("additionalProperties");
    if (more && !more->is_boolean() && !more->is_object())
      refuse(where, "additionalProperties has to be true, false or a schema");
    if (more && more->is_object() && !properties.empty())
      refuse(where, "additionalProperties with a schema is supported only without properties; use false");
    const bool is_map = properties.empty() && (more ? *more != false : !keywords.has("properties"));
    if (is_map) {
      const int32_t value = more ? rule_of(*more, inside(where, "additionalProperties")) : json_.value();
      return json_.map_of(value, Grammar::kEnd);
    }

    const int32_t close = json_.blank(builder_.text("}", Grammar::kEnd));
    // From the end: what follows property i, behind another one and as the first.
    int32_t behind = close, first = close;
    for (size_t i = properties.size(); i > 0; --i) {
      const Property& p = properties[i - 1];
      const int32_t member =
          builder_.text(written(p.name), builder_.text(":", json_.blank(builder_.call(p.rule, behind))));
      const int32_t with_comma = builder_.text(",", json_.blank(member)), alone = json_.blank(member);
      behind = p.required ? with_comma : builder_.choose({with_comma, behind});
      first = p.required ? alone : builder_.choose({alone, first});
    }
    return builder_.text("{", first);
  }

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const Json& root_;
  std::map<const Json*, int32_t> rules_;
  int level_ = 0;
};

// Anything that does not contain `mark`, then `next` behind a first `mark`, or the end.
int32_t until(GrammarBuilder& builder, const std::string& mark, int32_t next) {
  std::vector<int32_t> loops(mark.size());  // by how much of the mark has been read
  for (int32_t& loop : loops) loop = builder.begin_loop();
  std::vector<size_t> fallback(mark.size() + 1, 0);  // the longest border of each prefix
  for (size_t i = 1, k = 0; i < mark.size(); ++i) {
    while (k > 0 && mark[i] != mark[k]) k = fallback[k];
    if (mark[i] == mark[k]) ++k;
    fallback[i + 1] = k;
  }
  for (size_t at = 0; at < mark.size(); ++at) {
    std::map<size_t, ByteSet> leads;  // to how much of the mark each byte leads
    for (int byte = 0; byte < 256; ++byte) {
      size_t k = at;
      while (k > 0 && static_cast<unsigned char>(mark[k]) != byte) k = fallback[k];
      if (static_cast<unsigned char>(mark[k]) == byte) ++k;
      leads[k].set(static_cast<size_t>(byte));
    }
    std::vector<int32_t> choices = {Grammar::kEnd};
    for (const auto& [k, set] : leads) choices.push_back(builder.read(set, k == mark.size() ? next : loops[k]));
    builder.end_loop(loops[at], choices);
  }
  return loops.front();
}

}  // namespace

Grammar any_object_grammar() {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const int32_t root = json.object();
  return builder.finish(root);
}

Grammar schema_grammar(const Json& schema) {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const int32_t root = SchemaReader(builder, json, schema).read();
  return builder.finish(root);
}

Grammar call_grammar(const CallGrammar& given) {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const int32_t closing = builder.text(given.closing, Grammar::kEnd);
  const int32_t rest = given.several ? builder.begin_loop() : closing;
  std::vector<int32_t> calls;
  for (const FramedSchema& call : given.calls) {
    const int32_t rule = SchemaReader(builder, json, call.schema).read();
    calls.push_back(builder.text(call.before, builder.call(rule, builder.text(call.after, rest))));
  }
  const int32_t one = builder.choose(calls);
  if (given.several) builder.end_loop(rest, {closing, builder.text(given.separator, one)});
  ensure(!given.optional || !given.opening.empty(), "calls that may be left out begin with a mark");
  const int32_t begin = given.optional ? until(builder, given.opening, one) : builder.text(given.opening, one);
  return builder.finish(builder.rule(begin));
}

}  // namespace megatrain
