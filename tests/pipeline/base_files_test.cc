// A frozen base that stays in the model's files: no plan changes a bit, nothing is written, and a file that changes
// ends the run.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>

#include "megatrain/base/units.h"
#include "megatrain/generate/generator.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/schedule.h"
#include "tests/pipeline/adapter_check.h"
#include "tests/support/fixtures.h"

namespace megatrain::tiny {

namespace {

constexpr uint64_t kFilePlans = kSanitized ? 2 : 16;
constexpr int64_t kFileSteps = 3;

const std::vector<AdapterCase>& file_cases() {
  static const std::vector<AdapterCase> list = {
      {"bf16", {.rank = 4, .alpha = 8}, {.files = DType::bf16}},
      {"fp16", {.rank = 4, .dropout = 0.1}, {.clip = false, .files = DType::f16}},
      {"fp32", {.rank = 4, .also_train = {"model.norm", "layers.1.mlp.up_proj"}}, {.tied = true, .files = DType::f32}},
      {"bf16_in_fp32", {.rank = 4}, {.layers = 3, .precision = "fp32", .files = DType::bf16}},
      {"fp32_in_fp32", {.rank = 4}, {.layers = 3, .precision = "fp32", .files = DType::f32}},
      {"experts", {.rank = 4}, {.layers = 4, .experts = 6, .files = DType::bf16}},
      {"groups_of_experts",
       {.rank = 4, .dropout = 0.1},
       {.layers = 4, .experts = 6, .experts_per_record = 4, .files = DType::f16}},
      {"fp8",
       {.rank = 4, .dropout = 0.1},
       {.layers = 4, .fp8 = true, .fp8_source = true, .hidden = 136, .ff = 140, .files = DType::bf16}},
      {"experts_in_fp8",
       {.rank = 4, .also_train = {"layers.1.mlp.up_proj"}},
       {.layers = 4,
        .precision = "fp32",
        .experts = 6,
        .experts_per_record = 4,
        .fp8 = true,
        .fp8_source = true,
        .files = DType::bf16}}};
  return list;
}

// The plan with all that may stay in files there.
Plan in_files(const Workload& w, Plan plan, int64_t slabs = 2) {
  for (const int64_t r : w.layer_records()) {
    if (w.may_stay_in_files(r) && !plan.state_on_device(r)) plan.record(r).state = Tier::files;
  }
  plan.rings.weight_slabs = std::min(slabs, plan.with_weights_staged());
  check_plan(w, plan);
  return plan;
}

class BaseInFiles : public ::testing::TestWithParam<AdapterCase> {};

TEST_P(BaseInFiles, GivesTheHashOfHostMemoryAndOfScratchUnderEveryPlan) {
  Shape shape = GetParam().adapted();
  shape.base_place = "host";
  Tiny memory(shape);
  for (const RecordWork& record : memory.workload().records) ASSERT_EQ(record.file_bytes, 0);
  const std::string expected = memory.train(memory.default_plan(), kFileSteps);
  Tiny tiny(GetParam().adapted());
  const Workload& w = tiny.workload();
  const std::string before = read_bytes(tiny.base());
  int64_t streamed = 0, copied = 0, beside_scratch = 0;  // records over all plans
  for (uint64_t seed = 0; seed < kFilePlans; ++seed) {
    const Plan drawn = random_plan(w, seed);
    for (const Plan& plan : {drawn, in_files(w, drawn, 1 + static_cast<int64_t>(seed % 3))}) {
      for (int64_t r = 0; r < w.record_count(); ++r) {
        if (!plan.weights_in_files(r)) continue;
        streamed += plan.streams(r);
        copied += plan.copied(r);
        beside_scratch += plan.with_weights_on_disk() > 0;
      }
      ASSERT_EQ(tiny.train(plan, kFileSteps), expected) << "plan " << seed << ": " << plan_to_json(w, plan).dump();
    }
  }
  EXPECT_GT(streamed, 0);
  if (!kSanitized) {  // few plans
    EXPECT_GT(copied, 0);
    EXPECT_GT(beside_scratch, 0);
  }
  EXPECT_EQ(read_bytes(tiny.base()), before);
}

TEST_P(BaseInFiles, TakesNoMemoryAndNoScratchAndIsReadForEveryFetch) {
  Tiny tiny(GetParam().adapted());
  const Workload& w = tiny.workload();
  const Plan plan = in_files(w, tiny.default_plan());
  ASSERT_GT(plan.with_weights_in_files(), 0);
  const auto trainer = tiny.trainer(plan);
  const Device& device = *tiny.machine().device;
  const MemoryNeed need = memory_need(w, plan);
  EXPECT_EQ(device.host_ledger().bytes(), need.host_bytes()) << device.host_ledger().table();
  EXPECT_EQ(device.ledger().bytes(), need.hbm_bytes()) << device.ledger().table();
  EXPECT_EQ(need.disk_bytes(), 0);
  EXPECT_GT(need.file_bytes(), 0);
  int64_t read = 0;  // bytes
  for (const Action& action : grouped_actions(w, plan, w.micro_batches)) {
    if (action.kind == ActionKind::stage_weights) read += w.record(action.record).file_bytes;
  }
  const StepReport report = tiny.step(*trainer, 1);
  trainer->drain();
  EXPECT_EQ(report.disk_read_bytes, read);
  EXPECT_EQ(report.disk_write_bytes, 0);
}

TEST_P(BaseInFiles, IsReadBetweenStepsAsFromMemory) {
  Shape shape = GetParam().adapted();
  Tiny tiny(shape);
  const Workload& w = tiny.workload();
  Plan host = tiny.default_plan();
  for (RecordPlan& record : host.records) {
    if (record.state == Tier::files) record.state = Tier::host;
  }
  host.rings.weight_slabs = 0;
  const auto memory = tiny.trainer(host), files = tiny.trainer(in_files(w, tiny.default_plan()));
  for (size_t r = 0; r < memory->records().size(); ++r) {
    const LayerRecord &a = memory->records()[r], &b = files->records()[r];
    if (!b.weights_in_files()) continue;
    const int64_t bytes = a.weight_bytes();
    for (const auto& [begin, end] : {std::pair{int64_t{0}, bytes}, {bytes / 3, bytes / 2}, {int64_t{2}, int64_t{6}}}) {
      std::vector<std::byte> of_a(static_cast<size_t>(end - begin)), of_b(of_a.size(), std::byte{0x55});
      a.read_weights(begin, end - begin, of_a.data());
      b.read_weights(begin, end - begin, of_b.data());
      EXPECT_EQ(of_a, of_b) << "record " << r << " from " << begin << " to " << end;
    }
    for (const TensorSpec& tensor : b.layout().tensors) {
      std::vector<float> of_a(static_cast<size_t>(tensor.elements())), of_b(of_a.size());
      a.read_master(tensor, 0, tensor.elements(), of_a.data());
      b.read_master(tensor, 0, tensor.elements(), of_b.data());
      EXPECT_EQ(of_a, of_b) << tensor.name;
    }
  }
  const Batch batch = make_batch(shape, 4);
  EXPECT_EQ(memory->evaluate(batch).loss, files->evaluate(batch).loss);
}

INSTANTIATE_TEST_SUITE_P(Cases, BaseInFiles, ::testing::ValuesIn(file_cases()),
                         [](const auto& info) { return info.param.name; });

const AdapterCase& file_case(const std::string& name) {
  return *std::ranges::find_if(file_cases(), [&](const AdapterCase& c) { return c.name == name; });
}

TEST(BaseInFilesOf, Fp8GivesTheHashOfTheSameValuesInBf16) {
  AdapterCase c = file_case("fp8");
  Tiny fp8(c.adapted());
  c.shape.fp8_source = false;
  Tiny plain(c.adapted());
  const std::string expected = plain.train(plain.default_plan(), kFileSteps);
  EXPECT_EQ(fp8.train(fp8.default_plan(), kFileSteps), expected);
  EXPECT_EQ(fp8.train(in_files(fp8.workload(), fp8.default_plan()), kFileSteps), expected);
  int64_t packed = 0;
  for (int64_t r = 0; r < fp8.workload().record_count(); ++r) {
    if (!fp8.workload().is_packed(r)) continue;
    ++packed;
    EXPECT_LT(fp8.workload().stored_bytes(r), plain.workload().weight_bytes(r) * 6 / 10);
  }
  EXPECT_EQ(packed, c.shape.layers);
}

AdapterCase plain_case() { return {"", {.rank = 4}, {.files = DType::bf16}}; }

TEST(BaseInFilesOf, AnswersBetweenStepsAsFromMemory) {
  for (const AdapterCase& c : {plain_case(), file_case("groups_of_experts"), file_case("fp8")}) {
    Tiny tiny(c.adapted());
    std::vector<std::vector<int32_t>> answers;
    for (const bool files : {false, true}) {
      Plan plan = tiny.default_plan();
      if (files) plan = in_files(tiny.workload(), plan);
      const auto trainer = tiny.trainer(plan);
      tiny.step(*trainer, 1);
      trainer->drain();
      const ModelConfig model = model_config(c.shape);
      GeneratorOptions options{
          .max_context = 24, .max_batch = 2, .chunk_tokens = 4, .memory_bytes = int64_t{1} << 30, .adapter = c.adapter};
      Generator generator(*tiny.machine().device, *tiny.machine().ops, model, trainer->records(), options);
      for (const Generation& answer : generator.generate({{.prompt = {1, 2, 3}, .max_tokens = 12}}, {}))
        answers.push_back(answer.ids);
    }
    EXPECT_EQ(answers.at(0), answers.at(1));
  }
}

// Trains until an error ends the run.
void train_on(Tiny& tiny, Trainer& trainer) {
  for (int64_t step = 2; step <= 20; ++step) tiny.step(trainer, step);
  trainer.settle();
}

TEST(BaseInFilesOf, AFileThatIsCutReplacedOrWrittenToEndsTheRun) {
  struct Change {
    const char* says;
    void (*make)(const std::string& path);
  };
  const Change changes[] = {
      {"bytes and now has", [](const std::string& path) { std::filesystem::resize_file(path, 4096); }},
      {"was written to",
       [](const std::string& path) {
         const auto written = std::filesystem::last_write_time(path);
         std::filesystem::last_write_time(path, written + std::chrono::seconds(5));
       }},
      {"was replaced",
       [](const std::string& path) {
         std::filesystem::copy_file(path, path + "-2");
         std::filesystem::rename(path + "-2", path);
       }},
      {"can no longer be opened", [](const std::string& path) { std::filesystem::remove(path); }}};
  for (const bool direct : {true, false}) {
    for (const Change& change : changes) {
      SCOPED_TRACE(change.says);
      Tiny tiny(plain_case().adapted());
      tiny.machine().disk.files.direct = direct;
      const auto trainer = tiny.trainer(in_files(tiny.workload(), tiny.default_plan()));
      tiny.step(*trainer, 1);
      trainer->drain();
      change.make(tiny.base());
      expect_error(ExitCode::io, {tiny.base(), change.says, "restore it, then resume"},
                   [&] { train_on(tiny, *trainer); });
    }
  }
}

TEST(BaseInFilesOf, SaysHowMuchStaysThereAndHowItIsRead) {
  for (const bool direct : {true, false}) {
    Tiny tiny(plain_case().adapted());
    tiny.machine().disk.files.direct = direct;
    const Plan plan = in_files(tiny.workload(), tiny.default_plan());
    const auto trainer = tiny.trainer(plan);
    const std::string said = trainer->disk().description();
    const std::string bytes = format_bytes(memory_need(tiny.workload(), plan).file_bytes());
    EXPECT_NE(said.find(bytes + " of frozen weights stay in the model's files"), std::string::npos) << said;
    if (!direct) {
      EXPECT_NE(said.find("page cache"), std::string::npos) << said;
    }
  }
}

TEST(BaseInFilesOf, ADriveThatFailsEndsTheRun) {
  Tiny tiny(plain_case().adapted());
  std::atomic<int> left = 200;  // reads until the failure
  tiny.machine().disk.files.result = [&](int64_t, int64_t result) -> int64_t { return --left < 0 ? -EIO : result; };
  const auto trainer = tiny.trainer(in_files(tiny.workload(), tiny.default_plan()));
  tiny.step(*trainer, 1);
  expect_error(ExitCode::io, {"cannot read", tiny.base(), "check the disk"}, [&] { train_on(tiny, *trainer); });
}

// Writes a value into an element of a tensor of the file.
void write_element(const std::string& path, const std::string& name, int64_t element, const std::string& bytes) {
  const SafetensorsFile file(path);
  const StoredTensor& tensor = *file.find(name);
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(file.offset_of(tensor) + element * std::ssize(bytes));
  out.write(bytes.data(), std::ssize(bytes));
}

TEST(BaseInFilesOf, AWeightThatIsNotFiniteIsNamedInTheFirstStep) {
  struct Bad {
    DType type;
    std::string bytes, says;
  };
  using namespace std::string_literals;
  for (const Bad& bad :
       {Bad{DType::bf16, "\x80\x7f"s, "is inf"}, Bad{DType::f32, "\xff\xff\xff\x7f"s, "is nan"},
        Bad{DType::f32, "\xff\xff\x7f\x7f"s, "infinite in bf16"}, Bad{DType::f16, "\x00\xfc"s, "is -inf"}}) {
    AdapterCase c = plain_case();
    c.shape.files = bad.type;
    Tiny tiny(c.adapted());
    const std::string name = "model.layers.4.mlp.up_proj.weight";
    write_element(tiny.base(), name, 123, bad.bytes);
    const auto trainer = tiny.trainer(in_files(tiny.workload(), tiny.default_plan()));
    expect_error(ExitCode::bad_input, {tiny.base(), "element 123 of tensor " + name, bad.says},
                 [&] { tiny.step(*trainer, 1), trainer->settle(); });
  }
}

TEST(BaseInFilesOf, AWeightOrAScaleInFp8ThatIsNotFiniteIsNamed) {
  using namespace std::string_literals;
  const std::string name = "model.layers.2.mlp.up_proj.weight";
  struct Bad {
    std::string tensor, bytes, says;
    int64_t element;
  };
  for (const bool in_memory : {false, true}) {
    for (const Bad& bad : {Bad{name, "\x7f", "is nan", 123}, Bad{name, "\xff", "is", 18000},
                           Bad{name + "_scale_inv", "\x00\x00\x80\x7f"s, "is inf", 3},
                           Bad{name + "_scale_inv", "\xff\xff\x7f\x7f"s, "is", 0}}) {
      Tiny tiny(file_case("fp8").adapted());
      write_element(tiny.base(), bad.tensor, bad.element, bad.bytes);
      const bool large = bad.element == 0;  // a finite scale under which values are not
      const std::string named = large ? fmt::format("of tensor {} is", name)
                                      : fmt::format("element {} of tensor {}", bad.element, bad.tensor);
      expect_error(ExitCode::bad_input, {tiny.base(), named, bad.says}, [&] {
        const Plan plan = in_memory ? tiny.default_plan() : in_files(tiny.workload(), tiny.default_plan());
        const auto trainer = tiny.trainer(plan);
        tiny.step(*trainer, 1), trainer->settle();
      });
    }
  }
}

TEST(BaseInFilesOf, IsRefusedForRecordsThatAreTrainedAndPlacesThatAreNoFiles) {
  Tiny tiny(AdapterCase{"", {.rank = 4, .also_train = {"layers.2.mlp"}}, {.files = DType::bf16}}.adapted());
  const Workload& w = tiny.workload();
  const auto refused = [&](const std::string& part, const auto& change) {
    Plan plan = tiny.default_plan();
    change(plan);
    expect_error(ExitCode::bad_config, {part}, [&] { check_plan(w, plan); });
  };
  for (int64_t r = 0; r < w.record_count(); ++r) {
    if (!w.may_stay_in_files(r)) refused("memory.base", [r](Plan& p) { p.record(r).state = Tier::files; });
  }
  refused("moments", [](Plan& p) { p.record(1).moments = Tier::files; });
  refused("gradient", [](Plan& p) { p.record(2).gradient = Tier::files; });
  refused("weights", [](Plan& p) { p.record(1).weights = Tier::files; });
  refused("block 1", [](Plan& p) { p.phase(1).input = Tier::files; });
  refused("block 1", [](Plan& p) { p.phase(1).outputs = Tier::files; });
}

}  // namespace

}  // namespace megatrain::tiny
