#include "megatrain/train/model_loss.h"

#include "megatrain/base/work_progress.h"
#include "megatrain/data/open_data.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/train/session.h"

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
  check_weights(source.directory, source.config);
  if (config.adapter.rank == 0)
    config.train_only = {head_tensors(source.config).front().name};  // the final norm, which has almost no state
  const auto data = open_evaluation(config, source);

  Session session(config, source);
  session.fill_weights();
  return *mean_loss(session.trainer(), *data);
}

}  // namespace megatrain
