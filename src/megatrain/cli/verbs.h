// The verbs of the command line. Each prints its result on standard output, logs to standard error and returns the exit
// code. Errors are thrown.
#pragma once

#include <vector>

#include "megatrain/config/arguments.h"

namespace megatrain {

// The single source for `megatrain --help`, the dispatch and the errors about unknown words.
const std::vector<Verb>& verbs();

// The output of `megatrain --version`: version, commit, libraries and GPU, one per line.
std::string version_text();

int verb_train(const Arguments& arguments);
int verb_prepare(const Arguments& arguments);
int verb_plan(const Arguments& arguments);
int verb_doctor(const Arguments& arguments);
int verb_generate(const Arguments& arguments);
int verb_chat(const Arguments& arguments);
int verb_serve(const Arguments& arguments);
int verb_eval(const Arguments& arguments);
int verb_hash(const Arguments& arguments);
int verb_inspect(const Arguments& arguments);
int verb_inspect_data(const Arguments& arguments);
int verb_export(const Arguments& arguments);
int verb_merge(const Arguments& arguments);
int verb_report(const Arguments& arguments);
int verb_watch(const Arguments& arguments);
int verb_demo(const Arguments& arguments);
int verb_completion(const Arguments& arguments);

// Runs the program. `words` is argv without its first element; `program` is the name it was called by. Errors become a
// message on standard error and an exit code of docs/contract.md.
int run_command_line(const Words& words, const std::string& program = "megatrain");

}  // namespace megatrain
