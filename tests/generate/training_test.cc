// Generation from a trainer's own records, between steps.
#include <algorithm>

#include "megatrain/data/token_data.h"
#include "megatrain/model/model_source.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/state_files.h"
#include "megatrain/train/trainer.h"
#include "tests/generate/tiny_models.h"
#include "tests/hub/fixtures.h"

namespace megatrain::generation {
namespace {

constexpr GeneratorOptions kRoomy{.max_context = 100, .max_batch = 4, .memory_bytes = kPlenty};

TEST(GenerationWhileTraining, ATrainersRecordsAnswerAsTheModelItExportsDoes) {
  const TemporaryDirectory directory;
  const std::string name = "llama_linear", golden = model_path(name) + "/..";
  const nlohmann::json expected = read_json_file(golden + "/expected.json");
  TrainConfig config;
  config.device = "cpu";
  config.precision = "fp32";
  config.model.path = model_path(name);
  config.data = {.tokens = golden + "/tokens.bin", .dtype = expected.at("data").at("dtype")};
  config.seq_len = expected.at("seq_len");
  config.batch = expected.at("batch");
  config.micro_batch = 2;
  config.threads = 2;
  config.memory.gpu_bytes = config.memory.host_bytes = int64_t{1} << 30;
  const ModelSource source = read_model_source(config);
  Machine machine = open_machine(config.device, config.threads);
  const RunIdentity identity = make_identity(config, source.config);
  const Workload workload = make_workload(config, source.config, identity, machine);
  const Plan plan =
      choose_plan(config, workload, make_budgets(config, *machine.device), machine_profile(*machine.device), nullptr);
  Trainer trainer(machine, source.config, identity, ops_shape(config, source.config, identity), workload, plan, 2);
  const TensorTypes types = load_weights(source.directory, trainer.records(), 2).types;
  TokenData tokens(config, source.config.vocab);
  const auto train = [&](int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      trainer.step(tokens.batch(step - 1),
                   {.adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = step}, .clip = 1});
    }
  };
  const auto answers = [&](const std::vector<LayerRecord>& records) {
    Generator generator(*machine.device, *machine.ops, source.config, records, kRoomy);
    return ids_of(generator.generate(golden_requests(name), {}));
  };

  train(1, 3);
  trainer.drain();
  const auto between = answers(trainer.records());
  EXPECT_NE(between, golden_ids(name)) << "three steps changed nothing";
  export_model(directory / "model", {.source_directory = source.directory, .config_json = source.config_text}, types,
               trainer.records(), 2);
  std::vector<LayerRecord> exported =
      make_records(*machine.device, weights_only(model_layouts(source.config, DType::f32)),
                   std::vector<Tier>(static_cast<size_t>(source.config.layers + 2), Tier::host));
  load_weights(directory / "model", exported, 2);
  EXPECT_EQ(answers(exported), between);

  // training goes on as if nobody had asked
  train(4, 5);
  trainer.drain();
  const StateHash asked = hash_state(trainer.records(), 5);
  Trainer other(machine, source.config, identity, ops_shape(config, source.config, identity), workload, plan, 2);
  load_weights(source.directory, other.records(), 2);
  for (int64_t step = 1; step <= 5; ++step) {
    other.step(tokens.batch(step - 1),
               {.adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = step}, .clip = 1});
  }
  other.drain();
  EXPECT_EQ(to_json(asked), to_json(hash_state(other.records(), 5)));
}

}  // namespace
}  // namespace megatrain::generation
