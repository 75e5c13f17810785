#include "megatrain/foreign/trackers.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"

namespace megatrain {

namespace {

constexpr const char* kWritten = "TensorBoard files and metrics.jsonl are always written";
constexpr const char* kRunDirNames = "run_dir names the run";

// A tracker that runs are followed for, with Axolotl's keys.
struct Tracker {
  const char* name;
  const char* enabled;
  const char* project = nullptr;
  const char* run_name = nullptr;
};
constexpr Tracker kFollowed[] = {{"wandb", "use_wandb", "wandb_project", "wandb_name"},
                                 {"mlflow", "use_mlflow", "mlflow_experiment_name", "mlflow_run_name"},
                                 {"trackio", "use_trackio", "trackio_project_name", "trackio_run_name"},
                                 {"tensorboard", "use_tensorboard"}};

// Other trackers of the Hugging Face trainer and of LLaMA-Factory.
constexpr const char* kOthers[] = {"azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub",
                                   "dvclive",  "flyte",   "neptune",    "swanlab"};

bool is_followed(const std::string& name) {
  return std::any_of(std::begin(kFollowed), std::end(kFollowed),
                     [&](const Tracker& each) { return name == each.name; });
}

const Foreign* text_of(const ForeignReader& reader, const char* name) {
  const Foreign* value = name ? reader.find(name) : nullptr;
  return value && !value->text.empty() ? value : nullptr;
}

// The parts of report_to by whether runs are followed for them.
struct Reported {
  std::vector<std::string> followed, others;
};

Reported reported(const ForeignReader& reader) {
  Reported found;
  const Foreign* value = text_of(reader, "report_to");
  if (!value) return found;
  std::stringstream parts(value->text);
  for (std::string name; std::getline(parts, name, ',');) {
    name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
    if (name == "none" || name == "all") continue;  // all: those whose Python packages are installed there
    const bool known = std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
    if (!is_followed(name) && (!known || !reader.theirs()))
      fail_config(fmt::format("{}: report_to is '{}', expected none or some of wandb, mlflow, trackio, tensorboard",
                              value->where, value->text));
    std::vector<std::string>& list = is_followed(name) ? found.followed : found.others;
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  }
  return found;
}

}  // namespace

void hf_trackers(ForeignReader& reader) {
  const Reported to = reported(reader);
  if (!to.others.empty()) {
    const std::string others = fmt::format("{}", fmt::join(to.others, " and "));
    reader.differs("report_to", kWritten,
                   fmt::format("report_to names {}, which no script follows a run for; {}", others, kWritten));
  }
  if (!to.followed.empty())
    reader.add("report_to", "", "track.to", fmt::format("{}", fmt::join(to.followed, ",")));
  else if (to.others.empty())
    reader.idle("report_to", kWritten);
  const bool named = std::any_of(to.followed.begin(), to.followed.end(),
                                 [](const std::string& name) { return name != "tensorboard"; });
  for (const auto& [theirs, ours] : {std::pair{"run_name", "track.name"}, {"project", "track.project"}}) {
    const Foreign* value = text_of(reader, theirs);
    if (value && named)
      reader.add(theirs, "", ours, value->text);
    else
      reader.idle(theirs, kRunDirNames);
  }
}

void axolotl_trackers(ForeignReader& reader) {
  std::vector<std::string> names;
  const char *first = nullptr, *project = nullptr, *run_name = nullptr;
  for (const Tracker& each : kFollowed) {
    const bool disabled = std::string(each.name) == "wandb" && reader.text("wandb_mode", "") == "disabled";
    const bool enabled =
        reader.is_given(each.enabled) ? reader.flag(each.enabled) : text_of(reader, each.project) != nullptr;
    if (!enabled || disabled) continue;
    names.emplace_back(each.name);
    if (!first) first = reader.is_given(each.enabled) ? each.enabled : each.project;
    if (!project && text_of(reader, each.project)) project = each.project;
    if (!run_name && text_of(reader, each.run_name)) run_name = each.run_name;
  }
  if (names.empty()) return hf_trackers(reader);
  reader.idle("report_to", kWritten);
  for (const char* name : {"run_name", "project"}) reader.idle(name, kRunDirNames);
  reader.add(first, "", "track.to", fmt::format("{}", fmt::join(names, ",")));
  if (project) reader.add(project, "", "track.project", reader.find(project)->text);
  if (run_name) reader.add(run_name, "", "track.name", reader.find(run_name)->text);
}

}  // namespace megatrain
