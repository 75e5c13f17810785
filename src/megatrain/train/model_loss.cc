#include "megatrain/train/model_loss.h"

#include "megatrain/base/work_progress.h"
#include "megatrain/data/open_data.h"
#include "megatrain/model/model.h"
#include "megatrain/model/load_weights.h"
#include "megatrain/model/model_source.h"

namespace megatrain {

std::optional<ModelLoss> mean_loss(Trainer& trainer, BatchSource& source, const LossOptions& options) {
  WorkProgress progress(options.what, source.steps(), log_is_terminal() ? 1 : 10,
                        {.expected_s = options.expected_s, .ends_at_stop = true});
  ModelLoss result;
  double sum = 0;
  Batch batch;
  for (int64_t step = 0; step < source.steps(); ++step) {
    if (options.stop && *options.stop) return std::nullopt;
    source.load(step, batch);
    sum += naming_documents(source, step, [&] { return trainer.evaluate(batch).loss; }) *
           static_cast<double>(batch.trained);
    result.tokens += batch.trained;
    progress.add(1);
  }
  result.loss = sum / static_cast<double>(result.tokens);
  return result;
}

ModelLoss measure_loss(TrainConfig config) {
  const ModelSource source = read_model_source(config);
  config.train_only = {head_tensors(source.config).front().name};  // the final norm: next to nothing has state
  const auto data = open_evaluation(config, source);

  Machine machine = open_machine(config.device, config.threads);
  const RunIdentity identity = make_identity(config, source.config);
  const Workload workload = make_workload(config, source.config, identity, machine);
  const Plan plan =
      choose_plan(config, workload, make_budgets(config, *machine.device), machine_profile(*machine.device), nullptr);
  Trainer trainer(machine, source.config, identity, ops_shape(config, source.config, identity), workload, plan,
                  static_cast<int>(config.threads));
  load_weights(source.directory, trainer.records(), static_cast<int>(config.threads));

  return *mean_loss(trainer, *data);
}

}  // namespace megatrain
