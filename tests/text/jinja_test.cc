// The language of templates against jinja2 in transformers' sandbox, and templates that must be refused.
#include "megatrain/text/jinja/jinja.h"

#include <string>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/text/jinja/json.h"
#include "tests/text/template_golden.h"

namespace megatrain::jinja {
namespace {

using Json = nlohmann::ordered_json;

Inputs inputs_of(const Json& context) {
  Inputs inputs;
  for (const auto& [name, value] : context.items()) inputs.variables.emplace_back(name, from_json(value));
  inputs.now = golden::fixed_time();
  return inputs;
}

std::string error_of(const std::string& source, Inputs inputs = {}) {
  try {
    Template(source, "t").render(std::move(inputs));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_input);
    return error.what();
  }
  return "";
}

TEST(Jinja, EveryPieceOfTheLanguagePrintsWhatJinja2Prints) {
  const Json golden = golden::read_json("goldens/language.json");
  const Inputs inputs = inputs_of(golden["context"]);
  ASSERT_GE(golden["cases"].size(), 400u);
  for (const Json& expected : golden["cases"]) {
    const std::string source = expected["template"];
    SCOPED_TRACE(source);
    std::string output;
    try {
      output = Template(source, "t").render(inputs).bytes();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_TRUE(expected.contains("error")) << error.what() << "\nexpected: " << expected.value("output", "");
      continue;
    }
    EXPECT_TRUE(expected.contains("output"))
        << "expected an error: " << expected.value("error", "") << expected.value("why", "") << "\ngot: " << output;
    if (expected.contains("output")) {
      EXPECT_EQ(output, expected["output"].get<std::string>());
    }
  }
}

TEST(Jinja, ErrorsNameTheTemplateTheLineAndTheReason) {
  EXPECT_EQ(error_of("a\n\n{{ raise_exception('no way') }}"), "t, line 3: no way");
  EXPECT_NE(error_of("a\n{{ x.y }}").find("line 2: 'x' is undefined"), std::string::npos);
  EXPECT_NE(error_of("a\n{%- if x %}\n{% for y in z %}").find("line 3"), std::string::npos);
  EXPECT_NE(error_of("{{ [].append(1) }}").find("access to attribute 'append' of 'list' object is unsafe."),
            std::string::npos);
}

TEST(Jinja, ATemplateThatRunsAwayEndsInAnError) {
  Inputs few;
  few.max_steps = 100'000;
  const std::string loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
  EXPECT_NE(error_of(loop, few).find("steps"), std::string::npos);
  EXPECT_NE(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "");
  EXPECT_NE(error_of("{{ 'x' * 999999999 }}"), "");
  EXPECT_NE(error_of("{% set ns = namespace(t='xxxxxxxxxxxxxxxx') %}{% for i in range(99) %}{% set ns.t = ns.t ~ ns.t "
                     "%}{% endfor %}",
                     few),
            "");
  EXPECT_NE(error_of("{% set ns = namespace(t=[]) %}{% for i in range(999) %}{% set ns.t = [ns.t] %}{% endfor %}"), "");
  EXPECT_NE(error_of("{% set ns = namespace() %}{% set ns.self = ns %}"), "");
  EXPECT_NE(error_of("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "");
  std::string sum = "{{ 1";
  for (int i = 0; i < 5000; ++i) sum += "+1";
  EXPECT_NE(error_of(sum + " }}"), "");
}

TEST(Jinja, WhatItCannotRunIsRefused) {
  for (const char* source : {"{% include 'x' %}",
                             "{% extends 'x' %}",
                             "{% block b %}{% endblock %}",
                             "{% import 'x' as y %}",
                             "{% do x %}",
                             "{% trans %}{% endtrans %}",
                             "{% for x in y recursive %}{% endfor %}",
                             "{{ 'x'.encode() }}",
                             "{{ 'x'|urlencode }}",
                             "{{ ('<'|escape) + 'x' }}",
                             "{{ lipsum() }}",
                             "{{ 0x10 }}",
                             "{{ '\\ud83d' }}",
                             "{{ '\\N{DASH}' }}",
                             "\xff",
                             "{{ 99999999999999999999 // 3 }}",
                             "{{ 99999999999999999999 % 3 }}",
                             "{{ 99999999999999999999 / 3 }}",
                             "{{ 2 ** 99999 }}",
                             "{{ 10 ** 400 + 0.5 }}",
                             "{{ '%x' % 99999999999999999999 }}",
                             "{{ range(3)[1:] }}",
                             "{{ (1).real }}"}) {
    EXPECT_NE(error_of(source), "") << source;
  }
}

TEST(Jinja, AnIntegerPast64BitsKeepsItsDigitsFromJsonToText) {
  Inputs inputs;
  const std::string digits = "15511210043330985984000000";
  inputs.variables.emplace_back("x", from_json({{"n", json_integer(digits)}, {"m", {json_integer("-" + digits)}}}));
  EXPECT_EQ(Template("{{ x.n }} {{ x.m[0] }} {{ x.n + x.m[0] }} {{ x | tojson }}", "t").render(inputs).bytes(),
            digits + " -" + digits + " 0 {\"n\": " + digits + ", \"m\": [-" + digits + "]}");
  inputs.variables.emplace_back("small", from_json(json_integer("-9223372036854775808")));
  EXPECT_EQ(Template("{{ small - 1 + 1 }}", "t").render(inputs).bytes(), "-9223372036854775808");
  for (const char* const text : {"", "-", "1.5", "1e5", "+1", " 1"}) {
    EXPECT_THROW(from_json(json_integer(text)), Raise) << text;
  }
  EXPECT_THROW(from_json(json_integer(std::string(4301, '9'))), Raise);
}

TEST(Jinja, AMacroKeepsItsScopeAfterTheLoopThatMadeIt) {
  EXPECT_EQ(Template("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}{% set ns.f = "
                     "f %}{% endfor %}{{ ns.f() }}",
                     "t")
                .render({})
                .bytes(),
            "2");
}

TEST(Provenance, EachByteKnowsItsMessage) {
  Inputs inputs;
  inputs.variables.emplace_back("a", from_json({{"s", "héllo wörld"}, {"n", 12}, {"l", {1, "x"}}}, 5));
  const auto shown = [&](const std::string& source) {
    const Text text = Template(source, "t").render(inputs);
    std::string marks;
    for (size_t i = 0; i < text.size(); ++i) marks += text.origin_at(i).message == 5 ? text.bytes()[i] : '.';
    return marks;
  };
  EXPECT_EQ(shown("<{{ a.s }}>"), ".héllo wörld.");
  EXPECT_EQ(shown("{{ 'x' ~ a.s[1:4] ~ 'y' + a.s.split(' ')[1] }}"), ".éll.wörld");
  EXPECT_EQ(shown("{{ a.s | upper | replace('L', '--') }}"), "HÉ....O WÖR..D");
  EXPECT_EQ(shown("{{ a.n }} {{ a.l }} {{ a | tojson }}"),
            "12.[1, 'x'].{\"s\": \"héllo wörld\", \"n\": 12, \"l\": [1, \"x\"]}");
  EXPECT_EQ(shown("{% set t %}({{ a.s | trim }}){% endset %}{{ t | title }}"), ".Héllo Wörld.");
  EXPECT_EQ(shown("{{ '%s/%d' % (a.s, a.n) }}{{ '-{}-'.format(a.s) }}"), "héllo wörld.12.héllo wörld.");
  EXPECT_EQ(shown("{{ ['q', a.s] | join('+') }}{{ a.s[::-1] }}"), "..héllo wörlddlröw olléh");
  EXPECT_EQ(shown("{{ a.s | indent(2) }}{{ (a.s ~ '\\n') * 2 }}"), "héllo wörldhéllo wörld.héllo wörld.");
}

}  // namespace
}  // namespace megatrain::jinja
