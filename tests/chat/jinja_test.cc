// The template language compared with jinja2 in transformers' sandbox, and templates that must be refused.
#include "megatrain/chat/jinja/jinja.h"

#include <string>

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/jinja/json.h"
#include "tests/support/template_goldens.h"

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
  EXPECT_NE(error_of(std::string(kMaxSourceBytes + 1, 'x')).find("1048576"), std::string::npos);
}

// Each does far more work than its text suggests. The meter must stop it, whichever operation does the work.
const char* const kBombs[] = {
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{{ 'y' in s }}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{{ s.count('y') }}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s|count %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s|upper %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s.lower() %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s|tojson %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s[1:] %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s[-1] %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s ~ i %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s + 'y' %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s == 'x' * 4000000 %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = '%s' % s %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = '{}'.format(s) %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s|wordcount %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% if s is upper %}{% endif %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s.strip('yz') %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s|trim %}{% endfor %}",
    "{% set s = 'x' * 4000000 %}{% for i in range(99999) %}{% set t = s.startswith(s) %}{% endfor %}",
    "{% set s = 'a' * 30000000 %}{% for i in range(99) %}{{ ('a' * 15000000 ~ 'b') in s }}{% endfor %}",
    "{% set s = 'a' * 30000000 %}{% for i in range(99) %}{{ s.rfind('b' ~ 'a' * 15000000) }}{% endfor %}",
    "{{ ('x' * 1000)|replace('', 'y' * 1000000) }}",
    "{{ (['x' * 1000] * 1000)|join('y' * 1000000) }}",
    "{{ ('y' * 1000000).join('x' * 1000) }}",
    "{{ ('\n' * 1000)|indent('x' * 1000000, true, true) }}",
    "{{ 'x' * 99999999999 }}",
    "{{ [1] * 99999999999 }}",
    "{{ [] * 99999999999 }}{{ '%99999d' * 900 % ((1,) * 900) }}",
    "{% set s = 'x y' * 9000000 %}{{ s.split(' ')|length }}",
    "{% set s = 'x' * 9000000 %}{{ s|list|length }}",
    "{% set s = 'x\n' * 9000000 %}{{ s.splitlines()|length }}",
    "{% set s = 'x' * 9000000 %}{% for c in s %}{% endfor %}",
    "{% set s = 'x' * 9000000 %}{{ s|map('upper')|list|length }}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l + l %}{% endfor %}",
    "{% set l = range(99999)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l[::-1] %}{% endfor %}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l|sort %}{% endfor %}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l|first %}{% endfor %}",
    "{% set l = range(99999)|list %}{{ l|unique|list|length }}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l.count(-1) %}{% endfor %}",
    "{% set l = range(99999)|list %}{% for i in l %}{% set m = l|tojson %}{% endfor %}",
    "{% set d = dict(range(99999)|map('string')|batch(2)) %}{% for k in d %}{{ d[k] }}{% endfor %}",
    "{% set l = ['x' * 4000000] * 1000 %}{{ l|sort|length }}{{ l|unique|list|length }}{{ l|max|length }}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t }}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t|tojson }}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t|pprint }}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t ~ '' }}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ '%s' % [ns.t] "
    "}}",
    "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ {}[(ns.t, 1)] "
    "}}",
    "{% set ns = namespace(t=[1], u=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% set ns.u = [ns.u, "
    "ns.u] "
    "%}{% endfor %}{{ ns.t == ns.u }}",
    "{% set ns = namespace(t=(1,), u=(1,)) %}{% for i in range(99) %}{% set ns.t = (ns.t, ns.t) %}{% set ns.u = (ns.u, "
    "ns.u) %}{% endfor %}{{ ns.t < ns.u }}{{ [ns.t]|sum(start=[]) }}",
    "{% set ns = namespace(t=[1], u=[1]) %}{% for i in range(99) %}{% set ns.t = [ns.t, ns.t] %}{% set ns.u = [ns.u, "
    "ns.u] "
    "%}{% endfor %}{{ ns.t in [ns.u] }}",
    "{% set ns = namespace(t='x' * 60000000) %}{% set l = [ns.t ~ 1, ns.t ~ 2, ns.t ~ 3, ns.t ~ 4, ns.t ~ 5, ns.t ~ 6] "
    "%}",
    "{% set l = range(99999)|list %}{% set l = l * 10 %}{% set a = l + [] %}{% set b = l + [] %}{% set c = l + [] %}",
    "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% for i in [1] recursive %}{{ loop([1, 1]) if loop.depth < 60 }}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n else 'x' }}{% endmacro %}{{ f(60) }}",
    "{{ 7 ** 999999999 }}{{ 2 ** 99999 }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
};

TEST(Jinja, EveryBombEndsInASentenceWithinItsStepsAndBytes) {
  constexpr int64_t kSteps = 300'000;
  for (const char* const bomb : kBombs) {
    SCOPED_TRACE(bomb);
    Inputs inputs;
    inputs.max_steps = kSteps;
    RenderCost cost;
    std::string what;
    try {
      Template(bomb, "t").render(std::move(inputs), &cost);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      what = error.what();
    }
    const bool known = what.find("steps") != std::string::npos || what.find("grew past") != std::string::npos ||
                       what.find("more than 100 deep") != std::string::npos;
    EXPECT_TRUE(known) << what;
    EXPECT_LE(cost.steps, kSteps);
    EXPECT_LE(cost.peak_bytes, Interpreter::kMaxHeldBytes + kMaxTextBytes + kMaxItems * 128);
  }
}

// Steps stand for time, so an operation that examines each byte must cost more than one that copies them.
TEST(Jinja, AnOperationCostsWhatItReads) {
  constexpr int64_t kBytes = 80'000;
  const auto steps = [](const std::string& source) {
    RenderCost cost;
    Inputs inputs;
    inputs.variables.emplace_back("s", Value::of(std::string(kBytes, 'x')));
    inputs.variables.emplace_back("half", Value::of(std::string(kBytes / 2, 'a') + "x"));
    Template(source, "t").render(std::move(inputs), &cost);
    return cost.steps;
  };
  for (const char* copied : {"s ~ 'y'", "s + 'y'", "s == s", "s[1:]", "s|length", "s.startswith('y')", "s|string"})
    EXPECT_LT(steps("{% set t = " + std::string(copied) + " %}"), kBytes / 4) << copied;
  for (const char* unread : {"s|default('')", "s is defined", "s is string"})
    EXPECT_LT(steps("{% set t = " + std::string(unread) + " %}"), kBytes / 16) << unread;
  for (const char* searched : {"'y' in s", "'y' not in s", "s is in(s)", "s.count('y')", "s.find('y')", "s.rfind('y')",
                               "s.replace('y', 'z')", "s|replace('y', 'z')", "s.strip()", "s.strip('y')", "s|trim",
                               "s|trim('y')", "s.partition('y')", "s.startswith('y', 1)", "s.endswith('y', 1, 9)"})
    EXPECT_GE(steps("{% set t = " + std::string(searched) + " %}"), kBytes / 4) << searched;
  for (const char* decoded : {"s.split()", "s.split('y')", "s.rsplit('y')", "s.splitlines()", "s|upper", "s.lower()",
                              "s|tojson", "s|indent", "s.isalpha()", "s|wordcount"})
    EXPECT_GE(steps("{% set t = " + std::string(decoded) + " %}"), kBytes) << decoded;
  for (const char* apart : {"s|list", "s|first", "s|reverse", "s|join(',')", "','.join(s)", "s[::2]", "s|max"})
    EXPECT_GE(steps("{% set t = " + std::string(apart) + " %}"), 2 * kBytes) << apart;
  EXPECT_GE(steps("{% for c in s %}{% break %}{% endfor %}"), 2 * kBytes);
  EXPECT_GE(steps("{% set t = s.strip(half) %}"), kBytes * (kBytes / 2) / 256) << "each among all those";
  EXPECT_GE(steps("{% set t = s|trim(half) %}"), kBytes * (kBytes / 2) / 256);
  EXPECT_GE(steps("{% set t = 7 ** 4000 %}"), 10'000);
}

TEST(Jinja, ManyNamesCostWhatTheirSearchTakes) {
  constexpr int64_t kNames = 2000;
  std::string variables, entries, fields = "{% set ns = namespace() %}", keys;
  for (int64_t i = 0; i < kNames; ++i) {
    variables += "{% set a" + std::to_string(i) + " = 1 %}";
    entries += "'a" + std::to_string(i) + "': 1,";
    fields += "{% set ns.a" + std::to_string(i) + " = 1 %}";
    keys += "a" + std::to_string(i) + "=1,";
  }
  for (const std::string& source : {variables, "{% set d = {" + entries + "} %}", fields, "{{ dict(" + keys + ") }}"}) {
    RenderCost cost;
    Template(source, "t").render({}, &cost);
    EXPECT_GT(cost.steps, kNames * kNames / 16) << source.substr(0, 40);
  }
  RenderCost few, many;
  Template(variables + "{{ b }}", "t").render({}, &few);
  Template(variables + "{{ b }}{{ b }}", "t").render({}, &many);
  EXPECT_GT(many.steps - few.steps, kNames / 16);
}

TEST(Jinja, LargeValuesAreCountedAsLongAsTheyLive) {
  const auto peak = [](const std::string& source) {
    RenderCost cost;
    try {
      Template(source, "t").render({}, &cost);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("grew past"), std::string::npos) << error.what();
    }
    return cost.peak_bytes;
  };
  // Either each string is freed before the next is made, or all of them stay alive.
  EXPECT_LT(peak("{% for i in range(40) %}{% set t = 'x' * 9000000 %}{% endfor %}"), Interpreter::kMaxHeldBytes);
  EXPECT_GT(peak("{% set ns = namespace(l=[]) %}{% for i in range(40) %}{% set ns.l = ns.l + ['x' * 9000000 ~ i] %}{% "
                 "endfor %}"),
            Interpreter::kMaxHeldBytes);
}

TEST(Jinja, WorkInProportionToItsInputIsWithinTheSteps) {
  Inputs inputs;
  inputs.max_steps = 10'000;
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (int i = 0; i < 1000; ++i) messages.push_back({{"role", "user"}, {"content", std::string(5000, 'x')}});
  inputs.variables.emplace_back("messages", from_json(messages));
  const Text text =
      Template(
          "{% for m in messages %}{% if loop.index <= messages|length and 'y' not in m.content %}{{ m.role "
          "}}{{ m.content|trim|upper }}{{ m|tojson }}{{ messages[loop.index0].content[1:] }}{% endif %}{% "
          "endfor %}",
          "t")
          .render(inputs);
  EXPECT_GT(text.size(), 15'000'000u);
}

TEST(Jinja, WhatItCannotRunIsRefused) {
  for (const char* source : {"{% include 'x' %}",
                             "{% extends 'x' %}",
                             "{% import 'x' as y %}",
                             "{% do x %}",
                             "{% trans %}{% endtrans %}",
                             "{{ 'x'.encode() }}",
                             "{{ lipsum() }}",
                             "{{ 'x'|xmlattr }}",
                             "{{ ('<'|safe).upper() }}",
                             "{{ 1.5|round(-301) }}",
                             "{% block a required %}{% endblock %}",
                             "{% for i in [1] %}{{ loop([2]) }}{% endfor %}",
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
