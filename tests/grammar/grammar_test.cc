// Constrained answers: every text of a grammar parses and validates, and every text of the documented form is allowed.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "megatrain/base/error.h"
#include "megatrain/grammar/json_schema.h"
#include "megatrain/grammar/token_rules.h"
#include "tests/grammar/validator.h"
#include "tests/support/byte_model.h"

namespace megatrain {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kEndId = kImEnd;

// Bytes, and tokens of several bytes that JSON is often made of.
const Tokenizer& tokenizer() {
  static const Tokenizer made = [] {
    nlohmann::json json = byte_tokenizer();
    nlohmann::json& vocab = json["model"]["vocab"];
    int32_t id = 259;
    for (const char* token : {"{\"", "\":", "\":\u0120", "\",", ",\u0120\"", "\"}", "]}", "},\u0120{", "true", "false",
                              "null", "12", "0.5", "name", "abc", "\u010a\u0120\u0120", "\u0120\"", "\\u", "00e9"})
      vocab[token] = id++;
    return Tokenizer::from_json(json.dump(), "tokenizer.json");
  }();
  return made;
}

int64_t vocabulary() { return tokenizer().vocab_size() + 5; }  // a model may have more rows than tokens

std::shared_ptr<const TokenTrie> trie(bool with_special = false) {
  return std::make_shared<const TokenTrie>(tokenizer(), vocabulary(), with_special);
}

std::shared_ptr<TokenRules> rules(Grammar grammar) {
  return std::make_shared<TokenRules>(std::move(grammar), trie(), std::set<int32_t>{kEndId});
}

// An answer of random allowed tokens; empty if it does not end within `most` tokens. Brackets that close are preferred
// from the middle on.
std::string random_answer(const std::shared_ptr<TokenRules>& all, uint32_t seed, int most = 4000) {
  std::mt19937 random(seed);
  GrammarConstraint constraint(all);
  std::string text;
  for (int i = 0; i < most; ++i) {
    const TokenSet& allowed = constraint.allowed();
    std::vector<int32_t> choices, closing;
    for (int32_t id = 0; id < vocabulary(); ++id) {
      if (!allowed.has(id)) continue;
      choices.push_back(id);
      const std::string bytes = tokenizer().bytes_of(id);
      if (id == kEndId || bytes == "\"" || bytes == "}" || bytes == "]") closing.push_back(id);
    }
    const std::vector<int32_t>& from =
        !closing.empty() && random() % 100 < (i > most / 8 ? 90 : 10) ? closing : choices;
    const int32_t id = from[random() % from.size()];
    if (id == kEndId) return text;
    constraint.accept(id);
    text += tokenizer().bytes_of(id);
    if (constraint.complete()) return text;
  }
  return "";
}

// Whether the text is one that the grammar writes, byte by byte.
bool is_written(const Grammar& grammar, const std::string& text) {
  GrammarStates states(grammar);
  int32_t state = states.first();
  for (const char c : text) {
    state = states.step(state, static_cast<uint8_t>(c));
    if (state == GrammarStates::kDead) return false;
  }
  return states.accepts(state);
}

const Json kTree = Json::parse(std::string(R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
    "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["value", "children"], "additionalProperties": false}}})"));

const std::vector<Json>& schemas() {
  static const std::vector<Json> list = [] {
    std::vector<Json> parsed;
    for (const char* text :
         {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": false})",
          R"({"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": {"type": "null"},
              "d": {"enum": ["x", "xy", "xyz", "\"quoted\"", 5, 5.5, null, {"k": [1, "é"]}]}}, "required": ["c"]})",
          R"({"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
              "minItems": 1, "maxItems": 4})",
          R"({"anyOf": [{"type": "string", "minLength": 2, "maxLength": 5}, {"type": "integer"},
              {"type": "object", "additionalProperties": {"type": "boolean"}}]})",
          R"({"type": ["string", "null"]})", R"({"const": {"deep": ["er", 1]}})", R"({})", R"(true)",
          R"({"type": "object"})", R"({"type": "object", "required": ["x"], "title": "T", "description": "D"})",
          R"({"type": "object", "properties": {"k": {"allOf": [{"$ref": "#/definitions/d~1e"}]}},
              "definitions": {"d/e": {"enum": ["one", "two"]}}})",
          R"({"type": "object", "properties": {}, "additionalProperties": false})", R"({"type": "array"})",
          R"({"type": "array", "maxItems": 0})", R"({"type": "number"})", R"({"type": "string", "maxLength": 0})"})
      parsed.push_back(Json::parse(std::string(text)));
    parsed.push_back(kTree);
    return parsed;
  }();
  return list;
}

TEST(Grammar, EveryAnswerParsesAndValidates) {
  int ended = 0;
  for (const Json& schema : schemas()) {
    const std::shared_ptr<TokenRules> all = rules(schema_grammar(schema));
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const std::string text = random_answer(all, seed);
      if (text.empty()) continue;
      ++ended;
      const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << schema << "\n" << text;
      const nlohmann::json plain = nlohmann::json::parse(schema.dump());
      EXPECT_TRUE(is_valid(value, plain, plain)) << schema << "\n" << text;
    }
  }
  EXPECT_GT(ended, 600);
}

TEST(Grammar, EveryObjectOfJsonModeParses) {
  const std::shared_ptr<TokenRules> all = rules(any_object_grammar());
  int ended = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const std::string text = random_answer(all, seed);
    if (text.empty()) continue;
    ++ended;
    const nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
    EXPECT_TRUE(value.is_object()) << text;
  }
  EXPECT_GT(ended, 30);
}

TEST(Grammar, WhatSerializersWriteIsAllowed) {
  const Json value = {{"name", "Zoë \"Z\" \\ \n 漢字 😀"}, {"age", -41}};
  const Grammar grammar = schema_grammar(schemas()[0]);
  EXPECT_TRUE(is_written(grammar, value.dump()));
  EXPECT_TRUE(is_written(grammar, value.dump(2)));
  EXPECT_TRUE(is_written(grammar, value.dump(-1, ' ', true)));  // \u escapes, surrogates in pairs
  EXPECT_TRUE(is_written(grammar, R"({"name": "a", "age": 0})"));
  const Json tree = {{"value", 1}, {"children", {{{"value", 2}, {"children", Json::array()}}}}};
  EXPECT_TRUE(is_written(schema_grammar(kTree), tree.dump()));
  EXPECT_TRUE(is_written(schema_grammar(kTree), tree.dump(4)));
  for (const char* text : {"0", "-0.5", "12.25e-3", "1E+10", "123456789012345678"})
    EXPECT_TRUE(is_written(schema_grammar({{"type", "number"}}), text)) << text;
  for (const char* text : {R"({"c": null})", R"({"a": 1.5, "c": null})", R"({"b": true, "c": null, "d": "xy"})"})
    EXPECT_TRUE(is_written(schema_grammar(schemas()[1]), text)) << text;
}

TEST(Grammar, WhatDoesNotValidateIsNotAllowed) {
  const auto refused = [](const Json& schema, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) EXPECT_FALSE(is_written(schema_grammar(schema), text)) << schema << text;
  };
  refused(schemas()[0], {R"({"name": "a"})", R"({"age": 1, "name": "a"})", R"({"name": "a", "age": 1.5})",
                         R"({"name": "a", "age": 1, "more": 1})", R"({"name": 5, "age": 1})", "[]", ""});
  refused({{"type", "string"}}, {R"("\ud800")", R"("\udc00")", R"("\ud800\u0041")", "\"\n\"", R"("\x")", "\"\xff\"",
                                 "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"open"});
  refused({{"type", "number"}}, {"01", "+1", "1.", ".5", "1e", "1e999", "NaN", "1234567890123456789", "- 1"});
  refused({{"type", "string"}, {"minLength", 2}, {"maxLength", 3}}, {R"("é")", R"("abcd")"});
  refused({{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 2}, {"maxItems", 2}},
          {"[1]", "[1,2,3]", "[1,]", "[,1]", "[1 2]"});
  refused({{"type", "object"}, {"properties", Json::object()}}, {R"({"a": 1})"});
  refused({{"enum", {"a", 1}}}, {"\"b\"", "2", "\"a", "\"a\" "});
}

TEST(Grammar, WhatIsNotSupportedIsRefusedByName) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"type": "string", "pattern": "a+"})", "the keyword \"pattern\" is not supported"},
      {R"({"type": "string", "format": "date"})", "\"format\""},
      {R"({"type": "integer", "minimum": 3})", "\"minimum\""},
      {R"({"oneOf": [{"type": "string"}]})", "use anyOf"},
      {R"({"not": {}})", "\"not\""},
      {R"({"type": "array", "uniqueItems": true})", "\"uniqueItems\""},
      {R"({"type": "array", "prefixItems": [{}]})", "\"prefixItems\""},
      {R"({"type": "object", "properties": {"a": {"type": "object", "patternProperties": {}}}})",
       "at \"properties/a\""},
      {R"({"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "string"}})",
       "only without properties"},
      {R"({"type": "text"})", "expected one of object"},
      {R"({"type": []})", "empty list"},
      {R"({"$ref": "#/$defs/none"})", "which the schema does not have"},
      {R"({"$ref": "http://example.com/a.json"})", "schemas elsewhere are not read"},
      {R"({"$ref": "#"})", "is finite"},
      {R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]})", "is finite"},
      {R"({"anyOf": []})", "list of schemas"},
      {R"({"allOf": [{}, {}]})", "one schema"},
      {R"({"enum": []})", "list of values"},
      {R"({"type": "string", "enum": [1]})", "has the type"},
      {R"({"type": "string", "minLength": 3, "maxLength": 2})", "below minLength"},
      {R"({"type": "array", "minItems": -1})", "whole number"},
      {R"({"type": "array", "maxItems": 1e9})", "whole number"},
      {R"({"type": "object", "required": "a"})", "list of strings"},
      {R"({"type": "object", "properties": []})", "has to be an object"},
      {R"({"type": "object", "properties": {"a": 5}})", "an object or true"},
      {R"({"items": false})", "nothing matches"},
      {R"({"type": "string", "properties": {}})", "\"properties\" is not supported here"},
      {R"([])", "an object or true"}};
  for (const auto& [schema, part] : kCases) {
    try {
      schema_grammar(Json::parse(std::string(schema)));
      ADD_FAILURE() << schema << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Grammar, AHostileSchemaIsRefusedAndNotFollowedForever) {
  Json wide = {{"type", "array"}, {"items", {{"type", "array"}, {"maxItems", 10'000}}}, {"maxItems", 10'000}};
  for (int i = 0; i < 3; ++i) wide = {{"type", "array"}, {"items", wide}, {"maxItems", 10'000}, {"minItems", 9'999}};
  EXPECT_THROW(schema_grammar({{"type", "object"}, {"properties", {{"a", wide}, {"b", wide}, {"c", wide}}}}), Error);

  Json chain = {{"$ref", "#/$defs/0"}, {"$defs", Json::object()}};
  const auto add_links = [&](int from, int to) {
    for (int i = from; i < to; ++i)
      chain["$defs"][std::to_string(i)] = {{"type", "array"},
                                           {"items", {{"$ref", "#/$defs/" + std::to_string(i + 1)}}}};
    chain["$defs"][std::to_string(to)] = {{"type", "null"}};
  };
  add_links(0, 40);
  EXPECT_NO_THROW(schema_grammar(chain));
  add_links(40, 900);
  EXPECT_THROW(schema_grammar(chain), Error);
  add_links(900, 1500);
  EXPECT_THROW(schema_grammar(chain), Error);

  // Choices within choices that all begin alike: as many places at once as their product.
  Json twice = {{"$ref", "#/$defs/20"}, {"$defs", {{"0", {{"type", "string"}}}}}};
  for (int i = 0; i < 20; ++i) {
    const Json items = {{"$ref", "#/$defs/" + std::to_string(i)}};
    twice["$defs"][std::to_string(i + 1)] = {
        {"anyOf", {{{"type", "array"}, {"items", items}}, {{"type", "array"}, {"items", items}, {"minItems", 1}}}}};
  }
  GrammarStates states(schema_grammar(twice));
  EXPECT_THROW(
      {
        int32_t state = states.first();
        for (int i = 0; i < 20 && state >= 0; ++i) state = states.step(state, '[');
      },
      Error);
}

TEST(Grammar, NestingThatCouldNotBeClosedIsNotBegun) {
  const std::shared_ptr<TokenRules> all = rules(schema_grammar(kTree));
  GrammarConstraint constraint(all);
  const auto id_of = [](char c) { return static_cast<int32_t>(static_cast<unsigned char>(c)); };
  std::string text;
  for (int level = 0; level < 100; ++level) {
    for (const char c : std::string("{\"value\":1,\"children\":[")) {
      if (!constraint.allowed().has(id_of(c))) {
        EXPECT_GT(level, 20);
        for (int i = 0; i < 300 && !constraint.complete(); ++i) {  // it can still be closed
          for (const char closing : std::string("]}")) {
            if (constraint.complete() || !constraint.allowed().has(id_of(closing))) continue;
            constraint.accept(id_of(closing));
            text += closing;
          }
        }
        EXPECT_TRUE(constraint.complete());
        EXPECT_FALSE(nlohmann::json::parse(text, nullptr, false).is_discarded());
        return;
      }
      constraint.accept(id_of(c));
      text += c;
    }
  }
  FAIL() << "it nests without an end";
}

TEST(Grammar, AMaskHasExactlyTheTokensThatTheGrammarCanRead) {
  const Grammar grammar = schema_grammar(schemas()[1]);
  const std::shared_ptr<TokenRules> all = rules(grammar);
  const std::string text = random_answer(all, 3);
  ASSERT_FALSE(text.empty());
  GrammarStates states(grammar);
  GrammarConstraint constraint(all);
  int32_t state = states.first();
  for (const char c : text) {
    const TokenSet& allowed = constraint.allowed();
    for (int32_t id = 0; id < vocabulary(); ++id) {
      const std::string bytes = tokenizer().is_special(id) ? "" : tokenizer().bytes_of(id);
      int32_t at = bytes.empty() ? GrammarStates::kDead : state;
      for (size_t i = 0; i < bytes.size() && at >= 0; ++i) at = states.step(at, static_cast<uint8_t>(bytes[i]));
      EXPECT_EQ(allowed.has(id), at >= 0 || (id == kEndId && states.accepts(state))) << text << " " << id;
    }
    constraint.accept(static_cast<int32_t>(static_cast<unsigned char>(c)));
    state = states.step(state, static_cast<uint8_t>(c));
  }
}

// Long strings of bounded length have a state for each length, so states are forgotten on the way.
TEST(Grammar, AnswersThatShareRulesDoNotDisturbEachOther) {
  const std::shared_ptr<TokenRules> all =
      rules(schema_grammar({{"type", "array"}, {"items", {{"type", "string"}, {"maxLength", 3000}}}, {"maxItems", 3}}));
  GrammarConstraint a(all), b(all);
  const auto add = [](GrammarConstraint& constraint, char c) {
    ASSERT_TRUE(constraint.allowed().has(static_cast<unsigned char>(c))) << c;
    constraint.accept(static_cast<unsigned char>(c));
  };
  for (const char c : std::string("[\"")) add(a, c), add(b, c);
  for (int i = 0; i < 3000; ++i) {
    add(a, 'a');
    if (i % 500 == 0) add(b, 'b');
  }
  EXPECT_FALSE(a.allowed().has('a'));
  EXPECT_TRUE(b.allowed().has('b'));
  for (const char c : std::string("\",\"\",\"\"]")) add(a, c);
  EXPECT_TRUE(a.complete());
  for (const char c : std::string("\"]")) add(b, c);
  EXPECT_TRUE(b.complete());
}

TEST(Grammar, CallsHaveTheirFrames) {
  const Json first = {{"type", "object"}, {"properties", {{"x", {{"type", "integer"}}}}}, {"required", {"x"}}};
  const Json second = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  CallGrammar calls{
      .calls = {{"{\"name\": \"f\", \"arguments\": ", first, "}"}, {"{\"name\": \"g\", \"arguments\": ", second, "}"}},
      .opening = "<call>\n",
      .separator = "\n</call>\n<call>\n",
      .closing = "\n</call>"};
  const std::string f = R"({"name": "f", "arguments": {"x": 5}})", g = R"({"name": "g", "arguments": {}})";
  EXPECT_TRUE(is_written(call_grammar(calls), "<call>\n" + f + "\n</call>"));
  EXPECT_FALSE(is_written(call_grammar(calls), "<call>\n" + f + "\n</call>\n<call>\n" + g + "\n</call>"));
  EXPECT_FALSE(is_written(call_grammar(calls), "text <call>\n" + f + "\n</call>"));
  EXPECT_FALSE(is_written(call_grammar(calls), R"(<call>)"
                                               "\n"
                                               R"({"name": "f", "arguments": {}})"
                                               "\n</call>"));
  calls.several = true;
  EXPECT_TRUE(is_written(call_grammar(calls), "<call>\n" + f + "\n</call>\n<call>\n" + g + "\n</call>"));
  calls.optional = true;
  EXPECT_TRUE(is_written(call_grammar(calls), "no call, <ca<call but \xff text"));
  EXPECT_TRUE(is_written(call_grammar(calls), "text <<call>\n" + g + "\n</call>"));
  EXPECT_FALSE(is_written(call_grammar(calls), "text <call>\nmore"));
}

}  // namespace
}  // namespace megatrain
