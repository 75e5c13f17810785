// The verbs of the command line. Each reads its words, does its job, prints results on standard output and logs on
// standard error, and returns the exit code; errors are thrown.
#pragma once

#include "megatrain/config/arguments.h"

namespace megatrain {

int verb_train(const Words& words);
int verb_prepare(const Words& words);
int verb_plan(const Words& words);
int verb_generate(const Words& words);
int verb_eval(const Words& words);
int verb_hash(const Words& words);
int verb_inspect(const Words& words);
int verb_export(const Words& words);
int verb_report(const Words& words);
int verb_demo(const Words& words);

// Runs the program: argv without its first word. Errors become a sentence on standard error and the contract's code.
int run_command_line(const Words& words);

}  // namespace megatrain
