// `bench suite`: many rows of `bench step` in one process. Everything a row allocated is freed before the next begins.
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/clock.h"
#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/shortage.h"
#include "megatrain/base/table.h"
#include "megatrain/base/units.h"
#include "megatrain/base/version.h"
#include "megatrain/bench/bench.h"
#include "megatrain/config/arguments.h"
#include "megatrain/io/file.h"
#include "megatrain/io/yaml.h"

namespace megatrain {

namespace {

struct Row {
  std::string name;
  Words args;
};

std::vector<Row> read_rows(const std::string& path) {
  const auto refuse = [&](const YAML::Node& node, const std::string& what) {
    fail_config(fmt::format("{}:{}: {}; a suite is a list of {{name: TEXT, args: [WORD, ...]}}", path,
                            node.Mark().line + 1, what));
  };
  std::vector<Row> rows;
  try {
    const YAML::Node list = parse_yaml(read_text_file(path, kMiB), path);
    if (!list.IsSequence()) refuse(list, "this is not a list");
    for (const YAML::Node& node : list) {
      if (!node.IsMap() || node.size() != 2 || !node["name"] || !node["args"])
        refuse(node, "a row needs a name and args");
      if (!node["name"].IsScalar() || !node["args"].IsSequence()) refuse(node, "a name must be text and args a list");
      rows.push_back({node["name"].as<std::string>(), node["args"].as<Words>()});
    }
  } catch (const YAML::Exception& error) {
    fail_config(fmt::format("{}:{}: {}; a suite is a YAML or JSON list of {{name: TEXT, args: [WORD, ...]}}", path,
                            error.mark.line + 1, error.msg));
  }
  return rows;
}

// Resets the kernel's peak resident memory of this process.
void reset_memory_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

}  // namespace

BenchResult bench_suite(const Arguments& arguments) {
  const std::vector<Row> rows = read_rows(arguments.one("FILE"));
  const double start = now_s();
  BenchSession session;
  BenchResult result;
  Table table({"row", "tokens/s", "s a step", "TFLOP/s", "% of floor", "bound by", "device", "host"});
  nlohmann::json list = nlohmann::json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    log_info(fmt::format("row {}/{}, {}: bench step {}", i + 1, rows.size(), row.name, fmt::join(row.args, " ")));
    reset_memory_peak();
    session.start_s = now_s();
    nlohmann::json entry = {{"name", row.name}, {"args", row.args}};
    try {
      const Arguments row_arguments(row.args, step_verb());
      if (row_arguments.json()) fail_config("a row cannot have --json; give it to the suite");
      const nlohmann::json one = bench_step(row_arguments, session).json;
      const nlohmann::json& percent = one.at("percent_of_floor");
      table.row({row.name, fmt::format("{:.0f}", one.at("tokens_per_s").get<double>()),
                 fmt::format("{:.4g}", one.at("median_s").get<double>()),
                 fmt::format("{:.0f}", one.at("tflops_6n").get<double>()),
                 percent.is_null() ? "" : fmt::format("{:.1f}", percent.get<double>()), one.at("bound_by"),
                 format_bytes(one.at("peaks").at("hbm")), format_bytes(one.at("peaks").at("host"))});
      log_info(fmt::format("row {}: {:.4g} s a step, {:.0f} tokens/s, bound by {}", row.name,
                           one.at("median_s").get<double>(), one.at("tokens_per_s").get<double>(),
                           one.at("bound_by").get<std::string>()));
      entry["result"] = one;
    } catch (const std::exception& error) {
      const Error said = as_error(error);
      const int code = static_cast<int>(said.code());
      log_warn(fmt::format("row {} failed: {}", row.name, said.what()));
      table.row({row.name, "failed"});
      entry["error"] = said.what();
      entry["code"] = code;
      if (result.code == 0) result.code = code;
    }
    entry["seconds"] = now_s() - session.start_s;
    list.push_back(std::move(entry));
  }
  result.json = {{"rows", list}, {"seconds", now_s() - start}, {"commit", kBuildCommit}};
  result.text = table.text();
  return result;
}

}  // namespace megatrain
