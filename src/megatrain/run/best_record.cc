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

std::string pending_path(const std::string& run_dir) { return run_dir + "/best.pending.json"; }

[[noreturn]] void fail_damaged(const std::string& path, const std::string& run_dir, const std::string& why) {
  fail_input(fmt::format("{} is damaged: {}; remove it to use {}/best unchecked", path, why, run_dir));
}

nlohmann::json read_sealed(const std::string& path, const std::string& run_dir) {
  nlohmann::json document;
  try {
    document = read_json_file(path);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    fail_damaged(path, run_dir, "it is malformed JSON");
  }
  if (!seal_holds(document)) fail_damaged(path, run_dir, "its checksum does not match");
  return document;
}

nlohmann::json to_json(const BestRecord& record) {
  nlohmann::json document = {{"step", record.step}, {"model", record.weights}};
  if (record.loss) document["loss"] = *record.loss;
  if (!record.data.empty()) document["data"] = record.data;
  return document;
}

BestRecord from_json(const nlohmann::json& record, const std::string& path, const std::string& run_dir) {
  const auto has = [&](const char* key, bool (nlohmann::json::*is)() const noexcept) {
    return record.contains(key) && (record.at(key).*is)();
  };
  if (!has("model", &nlohmann::json::is_string) || !has("step", &nlohmann::json::is_number_integer))
    fail_damaged(path, run_dir, "it does not have a \"step\" and the hash \"model\"");
  BestRecord best{
      .step = record.at("step").get<int64_t>(), .loss = {}, .weights = record.at("model").get<std::string>()};
  if (has("loss", &nlohmann::json::is_number)) best.loss = record.at("loss").get<double>();
  if (has("data", &nlohmann::json::is_string)) best.data = record.at("data").get<std::string>();
  return best;
}

}  // namespace

std::string best_record_path(const std::string& run_dir) { return run_dir + "/best.json"; }

bool has_best(const std::string& run_dir) {
  std::error_code none;
  return std::filesystem::exists(run_dir + "/best/config.json", none) ||
         std::filesystem::exists(run_dir + "/best/adapter_config.json", none);
}

std::optional<BestRecord> read_best_record(const std::string& run_dir) {
  const std::string path = best_record_path(run_dir), pending = pending_path(run_dir);
  if (can_read(path)) return from_json(read_sealed(path, run_dir), path, run_dir);
  if (!can_read(pending) || !has_best(run_dir)) return {};
  const nlohmann::json both = read_sealed(pending, run_dir);
  const std::string weights = hash_directory(run_dir + "/best").weights;
  if (both.contains("former")) {
    const BestRecord former = from_json(both.at("former"), pending, run_dir);
    if (former.weights == weights) return former;
  }
  if (!both.contains("next")) fail_damaged(pending, run_dir, "it does not name the next model");
  const BestRecord next = from_json(both.at("next"), pending, run_dir);
  if (next.weights == weights) return next;
  fail_input(
      fmt::format("{}/best is damaged: its weights match no model that {} names; move it away, or bring it back from a "
                  "copy",
                  run_dir, pending));
}

void begin_best_record(const std::string& run_dir, const BestRecord& next) {
  nlohmann::json both = {{"next", to_json(next)}};
  if (const std::optional<BestRecord> former = read_best_record(run_dir)) both["former"] = to_json(*former);
  write_text_file(pending_path(run_dir), json_text(sealed(both), 1) + "\n");
  std::error_code none;
  std::filesystem::remove(best_record_path(run_dir), none);
}

void write_best_record(const std::string& run_dir, const BestRecord& record) {
  write_text_file(best_record_path(run_dir), json_text(sealed(to_json(record)), 1) + "\n");
  std::error_code none;
  std::filesystem::remove(pending_path(run_dir), none);
}

void remove_best_record(const std::string& run_dir) {
  std::error_code none;
  for (const std::string& path : {best_record_path(run_dir), pending_path(run_dir)})
    std::filesystem::remove(path, none);
}

}  // namespace megatrain
