// Generation from a trainer's own records, between steps.
#include <algorithm>

#include "megatrain/data/token_data.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"
#include "tests/generate/tiny_models.h"
#include "tests/support/fixtures.h"

namespace megatrain::generation {
namespace {

const GeneratorOptions kRoomyTraining{.max_context = 100, .max_batch = 4, .memory_bytes = kPlenty};

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
  Session session(config);
  Trainer& trainer = session.trainer();
  const TensorTypes types = session.fill_weights();
  TokenData tokens(config, session.model().vocab);
  const auto train = [&](int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; ++step) {
      trainer.step(tokens.batch(step - 1),
                   {.adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = step}, .clip = 1});
    }
  };
  const auto answers = [&](const std::vector<LayerRecord>& records) {
    Generator generator(session.device(), *session.machine().ops, session.model(), records, kRoomyTraining);
    return ids_of(generator.generate(golden_requests(name), {}));
  };

  train(1, 3);
  trainer.drain();
  const auto between = answers(trainer.records());
  EXPECT_NE(between, golden_ids(name)) << "three steps changed nothing";
  session.export_model(directory / "model", types);
  std::vector<LayerRecord> exported =
      make_records(session.device(), weights_only(model_layouts(session.model(), DType::f32)),
                   std::vector<Tier>(static_cast<size_t>(session.model().layers + 2), Tier::host));
  load_weights(directory / "model", exported, 2);
  EXPECT_EQ(answers(exported), between);

  // training continues as if nothing had been generated
  train(4, 5);
  trainer.drain();
  const StateHash asked = hash_state(trainer.records(), 5);
  const auto other = session.make_trainer(session.plan());
  load_weights(config.model.path, other->records(), 2);
  for (int64_t step = 1; step <= 5; ++step) {
    other->step(tokens.batch(step - 1),
                {.adamw = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .t = step}, .clip = 1});
  }
  other->drain();
  EXPECT_EQ(to_json(asked), to_json(hash_state(other->records(), 5)));
}

}  // namespace
}  // namespace megatrain::generation
