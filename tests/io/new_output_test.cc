// Outputs created under an unused name, by one process at a time.
#include "megatrain/io/new_output.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "megatrain/io/replace.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

// A process that creates `out` and is killed after writing part of it.
void leave_a_part(const std::string& out) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      const NewOutput output(out);
      write_bytes(output.path(), "a part");
      fs::create_directory(output.path() + ".partial");
      ::_exit(0);
    } catch (...) {
      ::_exit(1);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

}  // namespace

TEST(NewOutput, GetsItsNameWhenItIsWholeAndLeavesNothingBeside) {
  const TemporaryDirectory directory;
  {
    NewOutput file(directory / "file"), folder((directory / "folder") + "/");
    write_bytes(file.path(), "text");
    fs::create_directory(folder.path());
    write_bytes(folder.path() + "/inside", "more");
    EXPECT_FALSE(fs::exists(directory / "file") || fs::exists(directory / "folder"));
    file.put_in_place();
    folder.put_in_place();
    const NewOutput dropped(directory / "dropped");
    write_bytes(dropped.path(), "text");
  }
  EXPECT_EQ(listing(directory.path()), (std::set<std::string>{"file", "folder"}));
  EXPECT_EQ(read_bytes(directory / "file"), "text");
  EXPECT_EQ(read_bytes(directory / "folder/inside"), "more");
}

TEST(NewOutput, IsMadeByOneAtATime) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    NewOutput first(out);
    write_bytes(first.path(), "first");
    expect_error(ExitCode::bad_config, {"another export is writing " + out + "; wait for it", out + ".partial/lock"},
                 [&] { const NewOutput second(out); });
    first.put_in_place();
  }
  EXPECT_EQ(read_bytes(out), "first");
  expect_error(ExitCode::bad_config, {out, "already exists"}, [&] { const NewOutput second(out); });
  fs::remove(out);
  const NewOutput third(out);
}

TEST(NewOutput, OfManyAtOnceOneIsMade) {
  const TemporaryDirectory directory;
  for (int round = 0; round < 50; ++round) {
    const std::string out = directory / std::to_string(round);
    std::atomic<int> made{0}, refused{0}, winner{-1};
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t)
      threads.emplace_back([&, t] {
        try {
          NewOutput output(out);
          write_bytes(output.path(), std::to_string(t));
          output.put_in_place();
          ++made;
          winner = t;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ExitCode::bad_config) << error.what();
          ++refused;
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(made, 1);
    EXPECT_EQ(refused, 5);
    EXPECT_EQ(read_bytes(out), std::to_string(winner));
    fs::remove(out);
    EXPECT_TRUE(fs::is_empty(directory.path()));
  }
}

TEST(NewOutput, TakesOverWhatAKilledProcessLeft) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  leave_a_part(out);
  EXPECT_TRUE(fs::exists(out + ".partial/model"));
  {
    NewOutput output(out);
    EXPECT_EQ(listing(out + ".partial"), std::set<std::string>{"lock"});
    EXPECT_NE(read_bytes(out + ".partial/lock").find("pid " + std::to_string(::getpid()) + " "), std::string::npos);
    write_bytes(output.path(), "whole");
    output.put_in_place();
  }
  EXPECT_EQ(read_bytes(out), "whole");
  EXPECT_EQ(listing(directory.path()), std::set<std::string>{"out"});
}

TEST(NewOutput, LeavesAloneWhatItDidNotMake) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out", partial = out + ".partial", mine = directory / "mine";
  leave_a_part(directory / "other");
  const std::string marked = directory / "other.partial/lock";
  const std::vector<std::function<void()>> makers = {
      [&] { write_bytes(partial, ""); },
      [&] { write_bytes(partial, std::string(5000, '\0')); },
      [&] { write_bytes(partial, "GGUF of someone"); },
      [&] { fs::copy_file(marked, partial); },
      [&] { fs::create_symlink(mine, partial); },
      [&] { fs::create_symlink("nowhere", partial); },
      [&] { fs::create_directory_symlink(directory / "other.partial", partial); },
      [&] { ASSERT_EQ(::mkfifo(partial.c_str(), 0600), 0); },
      [&] { fs::create_directory(partial); },
      [&] {
        fs::create_directory(partial);
        write_bytes(partial + "/lock", "");
      },
      [&] {
        fs::create_directory(partial);
        fs::create_symlink(marked, partial + "/lock");
      },
      [&] {
        leave_a_part(out);
        write_bytes(partial + "/notes", "mine");
      },
  };
  for (size_t i = 0; i < makers.size(); ++i) {
    write_bytes(mine, "mine");
    makers[i]();
    const auto seen = [&] {
      std::vector<std::string> all;
      for (const auto& entry : fs::recursive_directory_iterator(directory.path()))
        all.push_back(entry.path().string() +
                      (entry.is_regular_file() && !entry.is_symlink() ? " " + read_bytes(entry.path()) : ""));
      std::sort(all.begin(), all.end());
      return all;
    };
    const std::vector<std::string> before = seen();
    SCOPED_TRACE(i);
    expect_error(ExitCode::io, {partial, "is not from an unfinished export"}, [&] { const NewOutput output(out); });
    EXPECT_EQ(seen(), before);
    fs::remove_all(partial);
  }
}

TEST(NewOutput, NeverReplacesWhatAppearedMeanwhile) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  for (const bool folder : {false, true}) {
    {
      NewOutput output(out);
      write_bytes(output.path(), "ours");
      if (folder) {
        fs::create_directory(out);
      } else {
        write_bytes(out, "theirs");
      }
      expect_error(ExitCode::bad_config, {out, "during the export"}, [&] { output.put_in_place(); });
    }
    EXPECT_EQ(fs::is_directory(out), folder);
    EXPECT_EQ(folder ? "theirs" : read_bytes(out), "theirs");
    EXPECT_EQ(listing(directory.path()), std::set<std::string>{"out"});
    fs::remove_all(out);
  }
}

TEST(NewOutput, DoesNotTakeWhatAnotherMakesWhereItsOwnWasRemoved) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  {
    NewOutput first(out);
    write_bytes(first.path(), "first");
    fs::remove_all(out + ".partial");
    NewOutput second(out);
    write_bytes(second.path(), "a part of the second");
    expect_error(ExitCode::io, {out + ".partial", "removed or replaced"}, [&] { first.put_in_place(); });
    write_bytes(second.path(), "second");
    second.put_in_place();
  }
  EXPECT_EQ(read_bytes(out), "second");
}

TEST(RenameToNew, RefusesANameThatIsTakenAlsoInSteps) {
  const TemporaryDirectory directory;
  const std::string file = directory / "file", folder = directory / "folder", taken = directory / "taken";
  for (const auto& rename : {rename_to_new, rename_to_new_in_steps}) {
    write_bytes(file, "text");
    fs::create_directory(folder);
    for (const std::string& from : {file, folder}) {
      for (const bool is_folder : {false, true}) {
        if (is_folder) {
          fs::create_directory(taken);
        } else {
          write_bytes(taken, "theirs");
        }
        EXPECT_FALSE(rename(from, taken)) << from;
        EXPECT_EQ(fs::is_directory(taken), is_folder);
        EXPECT_TRUE(fs::exists(from));
        fs::remove(taken);
      }
      EXPECT_TRUE(rename(from, taken)) << from;
      EXPECT_FALSE(fs::exists(from));
      EXPECT_EQ(fs::is_directory(taken), from == folder);
      fs::remove(taken);
    }
  }
}

TEST(NewOutput, RemovesWhatAProcessLeftThatWasKilledWhenItsOutputHadItsName) {
  const TemporaryDirectory directory;
  const std::string out = directory / "out";
  leave_a_part(out);
  fs::remove_all(out + ".partial/model");
  write_bytes(out, "whole");
  expect_error(ExitCode::bad_config, {out, "already exists"}, [&] { refuse_existing_output(out); });
  EXPECT_EQ(listing(directory.path()), std::set<std::string>{"out"});
  EXPECT_EQ(read_bytes(out), "whole");
  fs::create_directory(out + ".partial");  // not left by us
  expect_error(ExitCode::bad_config, {out, "already exists"}, [&] { const NewOutput output(out); });
  EXPECT_TRUE(fs::exists(out + ".partial"));
}

}  // namespace megatrain
