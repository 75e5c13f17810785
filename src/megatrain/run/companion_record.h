// RUN/companions.json: the checksums of the files in RUN/companions, which every model of the run takes along.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// RUN/companions: config.json, the tokenizer's files, templates and licences as they were when the run began. Every
// model that the run writes or that is exported from it takes them from here, so that none depends on a place that may
// move.
std::string companions_of(const std::string& run_dir);

// Of the files with these names in RUN/companions, config.json among them or not.
void write_companion_record(const std::string& run_dir, const std::vector<std::string>& names);
bool has_companion_record(const std::string& run_dir);
// Whether every file that the record names is there, as it was or changed.
bool has_recorded_companions(const std::string& run_dir);
// Before they are written anew.
void remove_companion_record(const std::string& run_dir);

// A sentence without its end: which of them is not as the run wrote it. Empty: none. Runs of an earlier megatrain have
// no record; of these only config.json has to be there.
std::string companion_damage(const std::string& run_dir);
// The same of their copies in RUN/model or RUN/best, config.json apart. Empty as well where no whole record is there. A
// run that was resumed with another tokenizer has a newer record than the best model it wrote before.
std::string model_companion_damage(const std::string& run_dir, const std::string& model);

}  // namespace megatrain
