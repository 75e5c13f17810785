#include "megatrain/run/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/json_text.h"
#include "megatrain/io/replace.h"
#include "megatrain/io/sealed_json.h"

namespace megatrain {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* kStateFile = "state.safetensors";
constexpr const char* kOtherForm = "in_other_form";
constexpr int64_t kMaxDescriptionBytes = 256 * kMiB;

// Maps NAME.exp_avg, NAME.exp_avg_sq and their scales to NAME.
std::string parameter_of(const std::string& name) {
  const std::string moment = name.ends_with(kScaleSuffix) ? name.substr(0, name.rfind('.')) : name;
  return is_moment(moment) ? moment.substr(0, moment.rfind('.')) : name;
}

[[noreturn]] void fail_damaged(const std::string& path, const std::string& why) {
  fail(ExitCode::corrupt_checkpoint, fmt::format("{}: the checkpoint is damaged: {}", path, why));
}

// Reads the fields of checkpoint.json and checks their types. Messages say what is expected.
class Description {
 public:
  explicit Description(const std::string& path) : path_(path), document_(read()) {}

  Checkpoint parse() {
    Checkpoint checkpoint{.path = path_, .version = version()};
    checkpoint.step = number("step", document_);
    std::string name = fs::path(path_).filename().string();
    if (name.ends_with(kPartialSuffix)) name.resize(name.size() - std::string_view(kPartialSuffix).size());
    if (const std::optional<int64_t> named = step_of_name(name); named && *named != checkpoint.step)
      fail_damaged(path_, fmt::format("checkpoint.json is of step {}", checkpoint.step));
    checkpoint.identity = field("identity", document_);
    if (!checkpoint.identity.is_object()) refuse("identity", "an object");
    checkpoint.state_hash = text("state", document_);
    if (checkpoint.state_hash.size() != 32 ||
        checkpoint.state_hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      refuse("state", "32 hexadecimal digits");
    const json& types = field("types", document_);
    if (!types.is_object()) refuse("types", "an object");
    for (const auto& [tensor, type] : types.items()) checkpoint.types[tensor] = type_from(type);
    read_other_forms(checkpoint.types);
    check_files(checkpoint);
    return checkpoint;
  }

 private:
  json read() const {
    const std::string file = path_ + "/checkpoint.json";
    if (!can_read(file)) fail_damaged(path_, "it has no checkpoint.json");
    try {
      return parse_json(read_text_file(file, kMaxDescriptionBytes), file, "expected what megatrain wrote");
    } catch (const Error& error) {
      if (error.code() == ExitCode::io) throw;
      fail_damaged(path_, error.what());
    }
  }

  int64_t version() const {
    if (!document_.is_object()) fail_damaged(path_, "checkpoint.json is not a JSON object");
    if (!document_.contains("checksum") && !document_.contains("version")) {
      for (const auto& [key, value] : document_.items()) {
        if (key != "step" && key != "identity" && key != "types" && key != "state")
          fail_damaged(path_, fmt::format("checkpoint.json has an unknown field {} and no checksum", printable(key)));
      }
      return 1;
    }
    if (!seal_holds(document_)) fail_damaged(path_, "the checksum of checkpoint.json does not match");
    const int64_t version = number("version", document_);
    if (version < 2) refuse("version", "at least 2");
    if (version > kCheckpointVersion) {
      fail_input(
          fmt::format("{} is a checkpoint of version {}, but this megatrain reads versions up to {}; use the megatrain "
                      "that wrote it",
                      path_, version, kCheckpointVersion));
    }
    return version;
  }

  // Checks the header, size and tensor names of the state file.
  void check_files(const Checkpoint& checkpoint) const {
    const std::string file = checkpoint.state_file();
    if (!can_read(file)) fail_damaged(path_, fmt::format("it has no {}", kStateFile));
    try {
      if (checkpoint.version >= 2) {
        const json& files = field("files", document_);
        if (!files.is_object() || files.size() != 1 || !files.contains(kStateFile)) refuse("files", kStateFile);
        const int64_t expected = number("bytes", files.at(kStateFile)), found = File::open_to_read(file).bytes();
        if (found != expected)
          fail_damaged(path_, fmt::format("{} has {} bytes, expected {}", kStateFile, found, expected));
      }
      const ModelFiles state(file);
      for (const auto& [name, type] : checkpoint.types) {
        if (!state.find(name)) fail_damaged(path_, fmt::format("{} has no tensor {}", kStateFile, printable(name)));
      }
      for (const StoredTensor* tensor : state.tensors()) {
        if (!checkpoint.types.contains(parameter_of(tensor->name)))
          fail_damaged(path_, fmt::format("checkpoint.json has no type of tensor {}", printable(tensor->name)));
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::bad_input) throw;
      fail_damaged(path_, error.what());
    }
  }

  const json& field(const char* key, const json& object) const {
    if (!object.is_object() || !object.contains(key))
      fail_damaged(path_, fmt::format("checkpoint.json has no field \"{}\"", key));
    return object.at(key);
  }

  int64_t number(const char* key, const json& object) const {
    const json& value = field(key, object);
    const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX);
    if (!fits || value.get<int64_t>() < 0) refuse(key, "a whole number of at least 0");
    return value.get<int64_t>();
  }

  std::string text(const char* key, const json& object) const {
    const json& value = field(key, object);
    if (!value.is_string()) refuse(key, "a string");
    return value.get<std::string>();
  }

  DType type_from(const json& value) const {
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      if (value.is_string() && value.get<std::string>() == dtype_name(type)) return type;
    }
    refuse("types", "tensor types that megatrain supports");
  }

  // Optional, and no reason for a new version: without it, exports store these tensors by themselves.
  void read_other_forms(TensorTypes& types) const {
    if (!document_.contains(kOtherForm)) return;
    const json& names = document_.at(kOtherForm);
    if (!names.is_array()) refuse(kOtherForm, "a list");
    for (const json& name : names) {
      const auto found = name.is_string() ? types.find(name.get<std::string>()) : types.end();
      if (found == types.end()) refuse(kOtherForm, "names of tensors");
      found->second.in_other_form = true;
    }
  }

  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail_damaged(path_, fmt::format("the field \"{}\" of checkpoint.json is {}, expected {}", key,
                                    printable(document_.value(key, json()).dump()), expected));
  }

  std::string path_;
  json document_;
};

// Tells another model from a damaged file by the name, shape and type of every tensor.
void check_same_model(const Checkpoint& checkpoint, const std::vector<LayerRecord>& records) {
  const ModelFiles state(checkpoint.state_file());
  std::set<std::string> known;
  const auto fail_other = [&](const std::string& difference) {
    fail_config(
        fmt::format("{} is a checkpoint of another model: {}. The checkpoint itself does not look damaged; use the "
                    "config.json and the frozen tensors that it was made with, or start a new run_dir",
                    checkpoint.path, difference));
  };
  for (const TensorDeclaration& tensor : stored_tensors(records)) {
    const StoredTensor* stored = state.find(tensor.name);
    if (!stored) fail_other(fmt::format("it has no tensor {}, which this run's model has", tensor.name));
    if (stored->shape != tensor.shape)
      fail_other(fmt::format("its tensor {} has shape {}, this run's model has {}", tensor.name,
                             format_shape(stored->shape), format_shape(tensor.shape)));
    if (stored->dtype != to_stored_type(tensor.dtype))
      fail_other(fmt::format("its tensor {} is stored as {}, this run stores {}", tensor.name,
                             stored_type_name(stored->dtype), stored_type_name(to_stored_type(tensor.dtype))));
    known.insert(tensor.name);
  }
  for (const StoredTensor* stored : state.tensors()) {
    if (!known.contains(stored->name))
      fail_other(fmt::format("it has a tensor {}, which this run's model does not have", printable(stored->name)));
  }
}

[[noreturn]] void fail_hash(const Checkpoint& checkpoint, const std::string& found) {
  fail_damaged(checkpoint.path,
               fmt::format("the hash of {} is {}, expected {}", kStateFile, found, checkpoint.state_hash));
}

}  // namespace

std::optional<int64_t> step_of_name(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return {};
  name.remove_prefix(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return {};
  return step;
}

bool is_checkpoint_directory(const std::string& path) {
  std::error_code none;
  fs::path full = fs::absolute(path, none);
  if (full.filename().empty()) full = full.parent_path();
  return fs::exists(full / "checkpoint.json", none) ||
         (step_of_name(full.filename().string()) && full.parent_path().filename() == "checkpoints");
}

Checkpoint read_checkpoint(const std::string& path) { return Description(path).parse(); }

std::string damage_of_checkpoint(const std::string& path) {
  try {
    read_checkpoint(path);
    return "";
  } catch (const Error& error) {
    if (error.code() != ExitCode::corrupt_checkpoint) throw;
    return error.what();
  }
}

void write_checkpoint(const std::string& directory, int64_t step, const json& identity, const TensorTypes& types,
                      const std::vector<LayerRecord>& records, int threads) {
  const std::string state = directory + "/" + kStateFile;
  const StateHash hash = save_state(state, step, records, StateForm::stored, threads);
  json names = json::object(), others = json::array();
  for (const auto& [name, type] : types) {
    names[name] = dtype_name(type);
    if (type.in_other_form) others.push_back(name);
  }
  const std::vector<TensorDeclaration> tensors = stored_tensors(records);
  const bool exact =
      std::all_of(tensors.begin(), tensors.end(), [](const TensorDeclaration& t) { return t.dtype == DType::f32; });
  json document = {{"version", exact ? kExactCheckpointVersion : kCheckpointVersion},
                   {"step", step},
                   {"identity", identity},
                   {"types", names},
                   {"state", hash.state},
                   {"files", {{kStateFile, {{"bytes", File::open_to_read(state).bytes()}}}}}};
  if (!others.empty()) document[kOtherForm] = others;
  write_text_file(directory + "/checkpoint.json", json_text(sealed(document), 1) + "\n");
}

StateHash verify_checkpoint(const Checkpoint& checkpoint) {
  StateHash found = hash_file(checkpoint.state_file());
  if (found.state != checkpoint.state_hash) fail_hash(checkpoint, found.state);
  found.step = checkpoint.step;
  return found;
}

void restore_checkpoint(const Checkpoint& checkpoint, std::vector<LayerRecord>& records, int threads) {
  check_same_model(checkpoint, records);
  try {
    load_state(checkpoint.state_file(), records, threads);
  } catch (const Error& error) {
    if (error.code() != ExitCode::bad_input) throw;
    fail_damaged(checkpoint.path, error.what());
  }
  const std::string found = hash_state(records, checkpoint.step, threads).state;
  if (found != checkpoint.state_hash) fail_hash(checkpoint, found);
}

}  // namespace megatrain
