// Checkpoints in process: what is kept, restored and refused.
#include "megatrain/run/checkpoints.h"
#include "megatrain/model/parse_config.h"

#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include <fmt/format.h>

#include "megatrain/base/number_text.h"
#include "megatrain/base/rng.h"
#include "megatrain/io/sealed_json.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"
#include "tests/support/mapped_pages.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

const nlohmann::json kIdentity = {{"batch", 4}, {"precision", "bf16"}};

ModelConfig small_model(int64_t layers = 2, int64_t vocab = 50) {
  return parse_model_config({{"architectures", {"Qwen3ForCausalLM"}},
                             {"vocab_size", vocab},
                             {"hidden_size", 24},
                             {"intermediate_size", 36},
                             {"num_hidden_layers", layers},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 2},
                             {"head_dim", 8}},
                            "config.json");
}

// Records with random contents in every plane; bf16 splits the master into two halves.
class State {
 public:
  State(DType dtype, uint64_t seed, int64_t layers = 2)
      : layouts_(model_layouts(small_model(layers), dtype)),
        tiers_(layouts_.size(), Tier::host),
        device_(make_cpu_device()) {
    for (size_t i = 0; i < tiers_.size(); i += 2) tiers_[i] = Tier::hbm;
    records_ = make_records(*device_, layouts_, tiers_);
    if (seed == 0) return;
    for (LayerRecord& record : records_) {
      for (const TensorSpec& tensor : record.layout().tensors) {
        std::vector<float> values(static_cast<size_t>(tensor.elements()));
        for (int plane = 0; plane < 3; ++plane) {
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = random_normal_pair(seed, static_cast<uint64_t>(tensor.offset * 3 + plane), i)[0];
          if (plane == 0) record.write_master(tensor, 0, tensor.elements(), values.data());
          if (plane > 0)
            record.write_moment(plane == 1 ? LayerRecord::Moment::first : LayerRecord::Moment::second, tensor, 0,
                                tensor.elements(), values.data());
        }
      }
    }
  }

  std::vector<LayerRecord>& records() { return records_; }
  std::string hash() const { return hash_state(records_, 0).state; }
  TensorTypes types() const {
    TensorTypes types;
    for (const LayerLayout& layout : layouts_) {
      for (const TensorSpec& tensor : layout.tensors) types[tensor.name] = tensor.is_vector() ? DType::f32 : DType::f16;
    }
    return types;
  }

 private:
  std::vector<LayerLayout> layouts_;
  std::vector<Tier> tiers_;
  std::unique_ptr<Device> device_;
  std::vector<LayerRecord> records_;
};

void save(Checkpoints& checkpoints, int64_t step, State& state) {
  checkpoints.save(step, kIdentity, state.types(), state.records(), 2);
}

// As a separate run would do it.
void save(const TemporaryDirectory& run, int64_t step, State& state, int64_t keep = 2) {
  Checkpoints checkpoints(run.path(), keep);
  save(checkpoints, step, state);
}

std::optional<Checkpoint> newest(const TemporaryDirectory& run) { return Checkpoints(run.path(), 1).newest(); }

std::string folder_of(const TemporaryDirectory& run, int64_t step) {
  return run / ("checkpoints/step-0000000" + std::to_string(step));
}

std::set<std::string> checkpoints_of(const TemporaryDirectory& run) { return listing(run / "checkpoints"); }

void flip(const std::string& path, size_t from_end) {
  std::string bytes = read_bytes(path);
  bytes[bytes.size() - from_end] = static_cast<char>(bytes[bytes.size() - from_end] ^ 1);
  write_bytes(path, bytes);
}

// The description as megatrain wrote it before it had versions.
void make_version_1(const std::string& checkpoint, const nlohmann::json& changes = nlohmann::json::object()) {
  nlohmann::json document = nlohmann::json::parse(read_bytes(checkpoint + "/checkpoint.json"));
  for (const char* key : {"version", "files", "checksum"}) document.erase(key);
  document.update(changes);
  write_bytes(checkpoint + "/checkpoint.json", document.dump(1) + "\n");
}

// The history of the names in a directory: "+NAME" appeared, ">NAME" was renamed, "-NAME" was removed.
class NameWatch {
 public:
  explicit NameWatch(const std::string& directory) : descriptor_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    EXPECT_GE(::inotify_add_watch(descriptor_, directory.c_str(), IN_CREATE | IN_MOVE | IN_DELETE), 0);
  }
  ~NameWatch() { ::close(descriptor_); }

  std::vector<std::string> events() const {
    std::vector<std::string> all;
    alignas(inotify_event) char buffer[64 * 1024];
    const ssize_t bytes = ::read(descriptor_, buffer, sizeof buffer);
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
      const char* what = event->mask & IN_DELETE ? "-" : event->mask & IN_MOVED_FROM ? ">" : "+";
      all.push_back(what + std::string(event->name));
      at += static_cast<ssize_t>(sizeof *event + event->len);
    }
    return all;
  }

 private:
  int descriptor_;
};

int64_t place_of(const std::vector<std::string>& events, const std::string& event) {
  const auto found = std::find(events.begin(), events.end(), event);
  return found == events.end() ? -1 : found - events.begin();
}

ino_t inode(const std::string& path) {
  struct stat status {};
  ::stat(path.c_str(), &status);
  return status.st_ino;
}

}  // namespace

// The pages of a file count as memory of the process, beside the copy in the records.
TEST(State, IsNotHeldTwiceWhileItIsRead) {
  const TemporaryDirectory directory;
  const std::string path = directory / "state.safetensors";
  const std::unique_ptr<Device> device = make_cpu_device();
  std::vector<LayerRecord> records =
      make_records(*device, model_layouts(small_model(1, 200'000), DType::f32), std::vector<Tier>(3, Tier::host));
  save_state(path, 1, records, StateForm::stored, 2);
  const int64_t bytes = static_cast<int64_t>(fs::file_size(path));
  EXPECT_LT(mapped_bytes_of([&] { load_state(path, records, 2); }), bytes / 2);
}

TEST(Checkpoint, RestoresEveryBitOfTheState) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const TemporaryDirectory run;
    State saved(dtype, 5), restored(dtype, 0);
    ASSERT_NE(saved.hash(), restored.hash());
    save(run, 7, saved);
    const std::optional<Checkpoint> found = newest(run);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->version, kExactCheckpointVersion);
    EXPECT_EQ(found->step, 7);
    EXPECT_EQ(found->identity, kIdentity);
    EXPECT_EQ(found->types, saved.types());
    restore_checkpoint(*found, restored.records(), 2);
    EXPECT_EQ(restored.hash(), saved.hash());
    EXPECT_EQ(verify_checkpoint(*found).state, saved.hash());
  }
}

TEST(Checkpoint, KeepsTheNewestAndLeavesNothingElse) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  for (const int64_t step : {1, 2, 9, 10, 100}) save(run, step, state, 3);
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000009", "step-00000010", "step-00000100"}));
  EXPECT_EQ(listing(run / "checkpoints/step-00000100"),
            (std::set<std::string>{"checkpoint.json", "state.safetensors"}));
  EXPECT_EQ(newest(run)->step, 100);
}

TEST(Checkpoint, AStepThatIsSavedIsNotSavedAgain) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  Checkpoints checkpoints(run.path(), 1);
  save(checkpoints, 3, state);
  const ino_t first = inode(folder_of(run, 3) + "/state.safetensors");
  save(checkpoints, 3, state);
  EXPECT_EQ(inode(folder_of(run, 3) + "/state.safetensors"), first);

  Checkpoints resumed(run.path(), 1);
  EXPECT_EQ(resumed.restore_newest(state.records(), 1).step, 3);
  save(resumed, 3, state);
  EXPECT_EQ(inode(folder_of(run, 3) + "/state.safetensors"), first);
}

TEST(Checkpoint, ADifferentStateOfTheSameStepReplacesItAtOnce) {
  const TemporaryDirectory run;
  State first(DType::bf16, 5), second(DType::bf16, 6), restored(DType::bf16, 0);
  save(run, 3, first, 1);
  const NameWatch watch(run / "checkpoints");
  save(run, 3, second, 1);
  const std::vector<std::string> events = watch.events();
  // The name passes to the new one, and no whole one was ever removed under it.
  EXPECT_GE(place_of(events, "+step-00000003"), 0) << testing::PrintToString(events);
  EXPECT_EQ(place_of(events, "-step-00000003"), -1) << testing::PrintToString(events);
  restore_checkpoint(*newest(run), restored.records(), 1);
  EXPECT_EQ(restored.hash(), second.hash());
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000003"}));
}

TEST(Checkpoint, OlderOnesGoOnlyWhenTheNewOneHasItsName) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 1, state, 1);
  const NameWatch watch(run / "checkpoints");
  save(run, 2, state, 1);
  const std::vector<std::string> events = watch.events();
  EXPECT_LT(place_of(events, "+step-00000002"), place_of(events, ">step-00000001")) << testing::PrintToString(events);
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000002"}));
}

TEST(Checkpoint, ACompleteOneThatLacksOnlyItsNameGetsIt) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5), other(DType::bf16, 6), restored(DType::bf16, 0);
  save(run, 3, other);
  save(run, 8, state);
  const auto kill_before_rename = [&] { fs::rename(folder_of(run, 8), folder_of(run, 8) + ".partial"); };
  for (const bool version_1 : {false, true}) {
    kill_before_rename();
    if (version_1) make_version_1(folder_of(run, 8) + ".partial");
    EXPECT_EQ(newest(run)->step, 3);
    testing::internal::CaptureStderr();
    recover_checkpoints(run.path());
    EXPECT_NE(testing::internal::GetCapturedStderr().find("step-00000008.partial was complete"), std::string::npos);
    EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000003", "step-00000008"}));
    restore_checkpoint(*newest(run), restored.records(), 1);
    EXPECT_EQ(restored.hash(), state.hash());
  }
  // also beside a damaged one with the same name
  kill_before_rename();
  fs::create_directories(folder_of(run, 8));
  recover_checkpoints(run.path());
  EXPECT_EQ(newest(run)->step, 8);
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000003", "step-00000008"}));
}

TEST(Checkpoint, WhatIsHalfWrittenIsNotSeenAndIsRemoved) {
  const TemporaryDirectory run;
  EXPECT_FALSE(newest(run).has_value());
  State state(DType::bf16, 5);
  save(run, 7, state);
  save(run, 8, state);
  for (const char* name : {"step-00000009.partial", "step-00000003.removed", "step-", "notes.partial"})
    fs::create_directories(run / ("checkpoints/" + std::string(name)));
  write_bytes(run / "checkpoints/step-00000009.partial/state.safetensors", "half");
  fs::copy(folder_of(run, 8), folder_of(run, 8) + ".partial");  // a copy of a whole one
  EXPECT_EQ(newest(run)->step, 8);
  testing::internal::CaptureStderr();
  recover_checkpoints(run.path());
  const std::string log = testing::internal::GetCapturedStderr();
  for (const char* name : {"step-00000009.partial", "step-00000003.removed", "step-00000008.partial"})
    EXPECT_NE(log.find(name), std::string::npos) << log;
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"notes.partial", "step-", "step-00000007", "step-00000008"}));
}

TEST(Checkpoint, FlippedBytesOfTheStateAreFound) {
  const TemporaryDirectory run;
  State saved(DType::bf16, 5), restored(DType::bf16, 0);
  save(run, 2, saved);
  const std::string path = run / "checkpoints/step-00000002/state.safetensors", whole = read_bytes(path);
  for (size_t at = 0; at < whole.size(); at += whole.size() / 97) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    write_bytes(path, damaged);
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002"},
                 [&] { restore_checkpoint(read_checkpoint(folder_of(run, 2)), restored.records(), 1); });
  }
}

TEST(Checkpoint, EveryFlippedCharacterOfTheDescriptionIsFound) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 2, state);
  const std::string path = folder_of(run, 2) + "/checkpoint.json", whole = read_bytes(path);
  for (size_t at = 0; at + 1 < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_bytes(path, damaged);
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002", "damaged"},
                 [&] { read_checkpoint(folder_of(run, 2)); });
  }
}

TEST(Checkpoint, RefusesAStateThatIsNotFiniteByName) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const char* plane : {"", ".exp_avg", ".exp_avg_sq"}) {
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        const TemporaryDirectory run;
        State saved(dtype, 5), restored(dtype, 0);
        LayerRecord& record = saved.records()[2];
        const TensorSpec& tensor = record.layout().tensors.back();
        const std::string name = tensor.name + plane;
        if (plane[0] == 0) {
          record.write_master(tensor, 7, 1, &bad);
        } else {
          record.write_moment(
              std::string(plane) == ".exp_avg" ? LayerRecord::Moment::first : LayerRecord::Moment::second, tensor, 7, 1,
              &bad);
        }
        save(run, 2, saved);
        expect_error(ExitCode::corrupt_checkpoint,
                     {"step-00000002/state.safetensors", fmt::format("element 7 of {} is {}", name, number_text(bad))},
                     [&] { restore_checkpoint(*newest(run), restored.records(), 1); });
      }
    }
  }
}

TEST(Checkpoint, RefusesADescriptionThatLacksAField) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 2, state);
  const std::string path = folder_of(run, 2) + "/checkpoint.json";
  const nlohmann::json whole = nlohmann::json::parse(read_bytes(path));
  for (const auto& [key, value] : whole.items()) {
    if (key == "checksum") continue;
    nlohmann::json broken = whole;
    broken.erase(key);
    write_bytes(path, sealed(broken).dump());
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002", key}, [&] { read_checkpoint(folder_of(run, 2)); });
  }
}

TEST(Checkpoint, OfVersion1IsReadAndCheckedAsFarAsItCanBe) {
  const TemporaryDirectory run;
  State saved(DType::bf16, 5), restored(DType::bf16, 0);
  save(run, 2, saved);
  make_version_1(folder_of(run, 2));
  testing::internal::CaptureStderr();
  EXPECT_EQ(Checkpoints(run.path(), 1).restore_newest(restored.records(), 1).version, 1);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("step-00000002 is of version 1"), std::string::npos);
  EXPECT_EQ(restored.hash(), saved.hash());

  const nlohmann::json types = nlohmann::json::parse(read_bytes(folder_of(run, 2) + "/checkpoint.json")).at("types");
  nlohmann::json renamed = types, untyped = types;
  renamed["model.nosuch.weight"] = "f32";
  untyped.begin().value() = "f33";
  for (const nlohmann::json& wrong : std::vector<nlohmann::json>{{{"step", -5}},
                                                                 {{"step", 3}},
                                                                 {{"step", 2.0}},
                                                                 {{"step", "2"}},
                                                                 {{"step", 18446744073709551615u}},
                                                                 {{"identity", 7}},
                                                                 {{"state", "abc"}},
                                                                 {{"state", nullptr}},
                                                                 {{"types", nlohmann::json::array()}},
                                                                 {{"types", renamed}},
                                                                 {{"types", untyped}},
                                                                 {{"stat", "x"}}}) {
    save(run, 2, saved);
    make_version_1(folder_of(run, 2), wrong);
    expect_error(ExitCode::corrupt_checkpoint, {"step-00000002"}, [&] { read_checkpoint(folder_of(run, 2)); });
  }
}

TEST(Checkpoint, OfALaterVersionIsRefusedAndNotCalledDamaged) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 1, state);
  save(run, 2, state);
  const std::string path = folder_of(run, 2) + "/checkpoint.json";
  nlohmann::json document = nlohmann::json::parse(read_bytes(path));
  document["version"] = kCheckpointVersion + 1;
  document["shards"] = 7;
  write_bytes(path, sealed(document).dump());
  expect_error(ExitCode::bad_input, {"step-00000002", "version 4"}, [&] { newest(run); });
}

TEST(Checkpoint, WhenTheNewestIsDamagedTheNextOlderIsRestoredAndNothingRemoved) {
  State older(DType::bf16, 5), newer(DType::bf16, 6), restored(DType::bf16, 0);
  using Damage = std::function<void(const std::string&)>;
  for (const Damage& damage :
       std::vector<Damage>{[](const std::string& path) { flip(path + "/state.safetensors", 100); },
                           [](const std::string& path) { fs::resize_file(path + "/state.safetensors", 5000); },
                           [](const std::string& path) { fs::remove(path + "/state.safetensors"); },
                           [](const std::string& path) { flip(path + "/checkpoint.json", 20); },
                           [](const std::string& path) { fs::remove(path + "/checkpoint.json"); }}) {
    const TemporaryDirectory run;
    save(run, 2, older);
    save(run, 4, newer);
    damage(folder_of(run, 4));
    testing::internal::CaptureStderr();
    Checkpoints checkpoints(run.path(), 1);
    EXPECT_EQ(checkpoints.restore_newest(restored.records(), 1).step, 2);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("step-00000004: the checkpoint is damaged"), std::string::npos) << log;
    EXPECT_NE(log.find("resuming from the older " + folder_of(run, 2)), std::string::npos) << log;
    EXPECT_EQ(restored.hash(), older.hash());
    EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000002", "step-00000004"}));
    save(checkpoints, 3, restored);  // makes space for itself, but not by removing the damaged one
    EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000003", "step-00000004"}));
    save(checkpoints, 4, newer);
    EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000004"}));
    EXPECT_EQ(verify_checkpoint(*newest(run)).state, newer.hash());
  }
}

TEST(Checkpoint, DamagedOnesAreNotCountedWhenOldOnesGo) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 2, state);
  save(run, 4, state);
  flip(folder_of(run, 4) + "/checkpoint.json", 20);
  save(run, 6, state, 2);
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000002", "step-00000004", "step-00000006"}));
}

TEST(Checkpoint, WhenAllAreDamagedThatIsSaidAndNothingStartsOver) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  save(run, 2, state);
  save(run, 4, state);
  flip(folder_of(run, 2) + "/checkpoint.json", 20);
  flip(folder_of(run, 4) + "/state.safetensors", 20);
  expect_error(ExitCode::corrupt_checkpoint, {"no intact checkpoint", "step-00000004"},
               [&] { Checkpoints(run.path(), 1).restore_newest(state.records(), 1); });
  EXPECT_EQ(checkpoints_of(run), (std::set<std::string>{"step-00000002", "step-00000004"}));
}

TEST(Checkpoint, OfAnotherModelIsNotCalledDamagedAndTheDifferenceIsNamed) {
  const TemporaryDirectory run;
  State two(DType::bf16, 5, 2), three(DType::bf16, 5, 3);
  const auto restore = [&](State& state) { Checkpoints(run.path(), 1).restore_newest(state.records(), 1); };
  save(run, 2, two);
  expect_error(ExitCode::bad_config,
               {"step-00000002", "no tensor model.layers.2.", "another model", "not look damaged"},
               [&] { restore(three); });
  save(run, 3, three);
  expect_error(ExitCode::bad_config, {"step-00000003", "a tensor \"model.layers.2."}, [&] { restore(two); });
}

TEST(Checkpoint, ThatCannotBeOpenedIsAnErrorOfTheDiskAndNotCalledDamaged) {
  State state(DType::bf16, 5);
  for (const char* name : {"checkpoint.json", "state.safetensors"}) {
    const TemporaryDirectory run;
    save(run, 1, state);
    save(run, 2, state);
    fs::remove(folder_of(run, 2) + "/" + name);
    fs::create_symlink(name, folder_of(run, 2) + "/" + name);  // ELOOP, because EACCES does not stop root
    expect_error(ExitCode::io, {name}, [&] { newest(run); });
  }
}

TEST(Checkpoint, AnOldOneThatCannotBeRemovedIsAWarningByName) {
  const TemporaryDirectory run;
  State state(DType::bf16, 5);
  Checkpoints checkpoints(run.path(), 1);
  save(checkpoints, 1, state);
  write_bytes(folder_of(run, 1) + ".removed", "in the way");
  testing::internal::CaptureStderr();
  save(checkpoints, 2, state);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("could not remove the old checkpoint " + folder_of(run, 1)), std::string::npos) << log;
  EXPECT_EQ(newest(run)->step, 2);
}

}  // namespace megatrain
