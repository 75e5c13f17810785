#include "megatrain/run/best_record.h"

#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/hash.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/sealed_json.h"

namespace megatrain {

namespace {

std::string former_path(const std::string& run_dir) { return run_dir + "/best.former.json"; }

[[noreturn]] void fail_damaged(const std::string& path, const std::string& run_dir, const std::string& why) {
  fail_input(fmt::format("{} is damaged: {}; remove it to use {}/best unchecked", path, why, run_dir));
}

BestRecord read_record(const std::string& path, const std::string& run_dir) {
  nlohmann::json record;
  try {
    record = read_json_file(path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    fail_damaged(path, run_dir, "it is no JSON document");
  }
  if (!seal_holds(record)) fail_damaged(path, run_dir, "it does not have the checksum that it names");
  const auto has = [&](const char* key, bool (nlohmann::json::*is)() const noexcept) {
    return record.contains(key) && (record.at(key).*is)();
  };
  if (!has("model", &nlohmann::json::is_string) || !has("step", &nlohmann::json::is_number_integer))
    fail_damaged(path, run_dir, "it does not have a \"step\" and the hash \"model\"");
  BestRecord best{
      .step = record.at("step").get<int64_t>(), .loss = {}, .weights = record.at("model").get<std::string>()};
  if (has("loss", &nlohmann::json::is_number)) best.loss = record.at("loss").get<double>();
  return best;
}

}  // namespace

std::string best_record_path(const std::string& run_dir) { return run_dir + "/best.json"; }

std::optional<BestRecord> read_best_record(const std::string& run_dir) {
  if (can_read(best_record_path(run_dir))) return read_record(best_record_path(run_dir), run_dir);
  std::error_code none;
  if (!can_read(former_path(run_dir)) || !std::filesystem::is_directory(run_dir + "/best", none)) return {};
  BestRecord former = read_record(former_path(run_dir), run_dir);
  if (hash_directory(run_dir + "/best").weights != former.weights) return {};
  return former;
}

void set_best_record_aside(const std::string& run_dir) {
  if (can_read(best_record_path(run_dir))) rename_path(best_record_path(run_dir), former_path(run_dir));
}

void write_best_record(const std::string& run_dir, const BestRecord& record) {
  nlohmann::json document = {{"step", record.step}, {"model", record.weights}};
  if (record.loss) document["loss"] = *record.loss;
  write_text_file(best_record_path(run_dir), json_text(sealed(document), 1) + "\n");
  std::error_code none;
  std::filesystem::remove(former_path(run_dir), none);
}

void remove_best_record(const std::string& run_dir) {
  std::error_code none;
  for (const std::string& path : {best_record_path(run_dir), former_path(run_dir)}) std::filesystem::remove(path, none);
}

}  // namespace megatrain
