// The verbs of the command line. Each does its job, prints results on standard output and logs on standard error, and
// returns the exit code; errors are thrown.
#pragma once

#include <vector>

#include "megatrain/config/arguments.h"

namespace megatrain {

// The one table: `megatrain --help`, the dispatch and the errors for unknown words come from it.
const std::vector<Verb>& verbs();

// What `megatrain --version` prints: version, commit, libraries and GPU, a line each.
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
int verb_report(const Arguments& arguments);
int verb_watch(const Arguments& arguments);
int verb_demo(const Arguments& arguments);
int verb_completion(const Arguments& arguments);

// Runs the program: argv without its first word. Errors become a sentence on standard error and the contract's code.
// `program` is what it was called by.
int run_command_line(const Words& words, const std::string& program = "megatrain");

}  // namespace megatrain
