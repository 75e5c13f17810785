#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/advice/longest_context.h"
#include "megatrain/advice/plan_answer.h"
#include "megatrain/base/log.h"
#include "megatrain/base/units.h"
#include "megatrain/cli/machine_choice.h"
#include "megatrain/cli/print_what_fits.h"
#include "megatrain/cli/standard_streams.h"
#include "megatrain/cli/verbs.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/json_text.h"
#include "megatrain/plan/describe.h"

namespace megatrain {

namespace {

// The options for the longest sequences that fit. `tokens` is the result of longest_context().
std::string longest_text(int64_t tokens) {
  if (tokens == 0) return fmt::format("longest context: less than {} tokens", kContextGrain);
  return fmt::format("longest context: {} tokens{} (--seq_len={} --micro_batch=1)", tokens,
                     tokens == kMostContext ? " or more" : "", tokens);
}

// One line a change, with its own speed.
std::string changes_text(const std::vector<Suggestion>& changes) {
  std::string text;
  for (const Suggestion& s : changes)
    text += fmt::format("  {:>8} tokens/s: {}{}\n", thousands(s.tokens_per_s), quoted_for_shell(s.change),
                        s.note.empty() ? "" : fmt::format(" ({})", s.note));
  return text;
}

// What bounds a step, and from what size on it would not.
std::string bound_text(const PlanInputs& p, const Outlook& o) {
  const Estimate& e = o.estimate;
  std::string text = fmt::format("bound by {}: compute {} (attention {}), h2d {}, d2h {}, update {}", e.bound_by,
                                 format_seconds(e.compute_s), format_seconds(o.attention_s), format_seconds(e.h2d_s),
                                 format_seconds(e.d2h_s), format_seconds(e.update_s));
  if (e.disk_read_s + e.disk_write_s > 0)
    text += fmt::format(", disk read {}, disk write {}", format_seconds(e.disk_read_s), format_seconds(e.disk_write_s));
  text += "\n";
  const int64_t hiding = std::max(o.link_tokens(), o.optimizer_tokens);
  if (e.bound_by != "compute" && hiding > p.workload.tokens())
    text += fmt::format("compute bounds it from {} tokens a step, this one has {}\n",
                        thousands(static_cast<double>(hiding)), thousands(static_cast<double>(p.workload.tokens())));
  return text;
}

// Where every byte lives, and what the figures of the verdict come from.
std::string details_text(const PlanAnswer& answer) {
  const PlanAnswer::Made& made = *answer.made;
  const PlanInputs& p = made.inputs;
  std::string text = explain(p.workload, made.plan, made.outlook.estimate) +
                     outlook_text(p.workload, made.outlook, p.profile, answer.price);
  if (const auto& small = made.smallest)
    text += fmt::format("the smallest step, one micro-batch of {} tokens, takes {}, bound by {}: {:.0f} tokens/s\n",
                        p.workload.micro_tokens, format_seconds(small->estimate.step_s), small->estimate.bound_by,
                        small->tokens_per_s);
  return text + describe(answer.files, answer.free_of);
}

void print_plan(const PlanAnswer& answer, const std::string& name, bool bytes) {
  const PlanAnswer::Made& made = *answer.made;
  fmt::print("{}", verdict_text(answer.verdict, name, answer.config, made.inputs, made.outlook, answer.price,
                                answer.step_chosen));
  fmt::print("{}", bound_text(made.inputs, made.outlook));
  for (const std::string& change : made.changes) fmt::print("to fit: {}\n", change);
  if (!answer.suggestions.empty()) fmt::print("faster:\n{}", changes_text(answer.suggestions));
  fmt::print("{}\n", longest_text(answer.longest));
  if (bytes) fmt::print("{}", details_text(answer));
  if (!answer.problem.empty()) say_error(answer.problem);
}

void print_misfit(const PlanAnswer& answer) {
  say_error(fmt::format("does not fit on {}: {}", answer.machine.title(), answer.problem));
  if (!answer.suggestions.empty()) log_info("would fit, the best first:");
  std::istringstream lines(changes_text(answer.suggestions));
  for (std::string line; std::getline(lines, line);) log_info(line);
  if (answer.longest > 0) log_info(longest_text(answer.longest));
}

}  // namespace

int verb_plan(const Arguments& arguments) {
  if (arguments.flag("--what-fits")) return print_what_fits(arguments);
  const std::string& name = arguments.one("CONFIG, DIR, PRESET or Org/Name");
  const bool configuration = names_configuration(name);
  const PlanAnswer answer =
      answer_plan({.target = read_target(name, arguments.overrides(), arguments.integer("--layers")),
                   .machine = machine_choice(arguments),
                   .seed = arguments.integer("--random"),
                   .price = arguments.number("--price"),
                   .run_dir_is_known = configuration,
                   .free = {.batch = !configuration && !arguments.overrides("batch"),
                            .micro_batch = !configuration && !arguments.overrides("micro_batch")},
                   .looks_for_faster = !arguments.json() && !arguments.option("--random")});
  if (arguments.json()) {
    fmt::print("{}\n", json_text(to_json(answer), 1));
  } else if (answer.made) {
    print_plan(answer, name, arguments.flag("--bytes"));
  } else {
    print_misfit(answer);
  }
  return static_cast<int>(answer.problem.empty() ? ExitCode::ok : ExitCode::cannot_fit);
}

}  // namespace megatrain
