// RUN/companions.json: the checksums of the files in RUN/companions, which are copied into every model of the run.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// RUN/companions: config.json, tokenizer files, chat templates and licences as they were when the run began. Every
// model written by the run or exported from it takes them from here, so none depends on a path that may move.
std::string companions_of(const std::string& run_dir);

// Records the files of these names in RUN/companions, and config.json whether it is listed or not.
void write_companion_record(const std::string& run_dir, const std::vector<std::string>& names);
bool has_companion_record(const std::string& run_dir);
// Whether every file of the record exists, changed or not.
bool has_recorded_companions(const std::string& run_dir);
// Called before the companions are written again.
void remove_companion_record(const std::string& run_dir);

// Names the companion that is not as the run wrote it, as a sentence without its full stop; empty if all are. Runs of
// an earlier megatrain have no record; for these only config.json must exist.
std::string companion_damage(const std::string& run_dir);
// The same for their copies in RUN/model or RUN/best, except config.json. Also empty when there is no intact record. If
// the run was resumed with another tokenizer, the record is newer than a best model written before that.
std::string model_companion_damage(const std::string& run_dir, const std::string& model);

}  // namespace megatrain
