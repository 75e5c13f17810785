#include "megatrain/hub/hub_cache.h"

#include "tests/support/hub_folder.h"

namespace megatrain {

TEST(HubCache, LiesWhereHuggingFacesToolsPutIt) {
  Variables variables;
  variables.set("HOME", "/home/u");
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) variables.unset(name);
  EXPECT_EQ(hub_cache_directory(), "/home/u/.cache/huggingface/hub");
  variables.set("XDG_CACHE_HOME", "/caches");
  EXPECT_EQ(hub_cache_directory(), "/caches/huggingface/hub");
  variables.set("HF_HOME", "/hf");
  EXPECT_EQ(hub_cache_directory(), "/hf/hub");
  variables.set("HF_HUB_CACHE", "/models");
  EXPECT_EQ(hub_cache_directory(), "/models");
  variables.set("HF_HUB_CACHE", "");
  EXPECT_EQ(hub_cache_directory(), "/hf/hub");
}

TEST(HubCache, NamesAreTwoPlainParts) {
  for (const char* name : {"Org/Name", "Qwen/Qwen2.5-7B-Instruct", "a/b_c.d"}) EXPECT_TRUE(is_hub_name(name)) << name;
  for (const char* path : {"Name", "", "/", "Org/", "/Name", "./Name", "../Name", "Org/Name/", "a/b/c", "Org/.Name",
                           "Org/Na me", "Org/-x", "Org\\Name", "~/Name"})
    EXPECT_FALSE(is_hub_name(path)) << path;
}

TEST(HubCache, ADirectoryOfThatNameComesFirst) {
  const HubFolder hub;
  const TemporaryDirectory here;
  std::filesystem::create_directories(here / "Org/Name");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(here.path());
  EXPECT_EQ(find_model("Org/Name", ModelParts::weights), "Org/Name");
  std::filesystem::current_path(before);
  EXPECT_EQ(find_model("/no/such/place", ModelParts::weights), "/no/such/place");
  EXPECT_EQ(find_model("", ModelParts::weights), "");
}

TEST(HubCache, FindsTheSnapshotOfMain) {
  const HubFolder hub;
  hub.add("config.json", "{}");
  hub.add("model.safetensors", "");
  std::filesystem::create_directories(hub.snapshot("other"));
  hub.point_main_at("c0ffee\n");
  EXPECT_EQ(find_model("Org/Name", ModelParts::weights), hub.snapshot());
}

TEST(HubCache, WithoutMainTakesTheOnlySnapshotButNeverGuesses) {
  const HubFolder hub;
  hub.add("config.json", "{}");
  EXPECT_EQ(find_model("Org/Name", ModelParts::config), hub.snapshot());
  std::filesystem::create_directories(hub.snapshot("beef"));
  expect_error(ExitCode::bad_input, {"2 snapshots", "beef", "c0ffee"},
               [] { find_model("Org/Name", ModelParts::config); });
}

TEST(HubCache, SaysWhereItLookedAndHowToDownload) {
  const HubFolder hub;
  expect_error(ExitCode::bad_input, {hub.folder(), "'hf download Org/Name config.json'"},
               [] { find_model("Org/Name", ModelParts::config); });
  std::filesystem::create_directories(hub.folder());
  expect_error(ExitCode::bad_input, {"no snapshot", "hf download Org/Name"},
               [] { find_model("Org/Name", ModelParts::config); });
  hub.point_main_at("gone");
  expect_error(ExitCode::bad_input, {"gone", "no snapshot", "hf download Org/Name"},
               [] { find_model("Org/Name", ModelParts::config); });
  for (const char* bad : {"", "../../x", ".."}) {
    hub.point_main_at(bad);
    expect_error(ExitCode::bad_input, {"refs/main", "name of a commit"},
                 [] { find_model("Org/Name", ModelParts::config); });
  }
}

TEST(HubCache, NamesWhatAnUnfinishedDownloadLacks) {
  const HubFolder hub;
  hub.add("config.json", "{}");
  expect_error(ExitCode::bad_input, {"lacks model.safetensors", "hf download Org/Name", "--local-dir"},
               [] { find_model("Org/Name", ModelParts::weights); });
  hub.add("model.safetensors.index.json",
          R"({"weight_map": {"a": "model-00001-of-00003.safetensors", "b": "model-00002-of-00003.safetensors",
              "c": "model-00003-of-00003.safetensors"}})");
  hub.add("model-00001-of-00003.safetensors", "");
  hub.add("model-00002-of-00003.safetensors", "");
  std::filesystem::remove(hub.folder() + "/blobs/of-model-00002-of-00003.safetensors");  // the link dangles
  write_bytes(hub.folder() + "/blobs/abc.incomplete", "half");
  expect_error(
      ExitCode::bad_input,
      {"lacks model-00002-of-00003.safetensors, model-00003-of-00003.safetensors", "1 of its files", "*.incomplete"},
      [] { find_model("Org/Name", ModelParts::weights); });
  EXPECT_EQ(find_model("Org/Name", ModelParts::config), hub.snapshot());
  std::filesystem::remove(hub.snapshot() + "/config.json");
  expect_error(ExitCode::bad_input, {"lacks config.json"}, [] { find_model("Org/Name", ModelParts::config); });
}

TEST(HubCache, LeavesPickledWeightsToTheirOwnRefusal) {
  const HubFolder hub;
  hub.add("config.json", "{}");
  hub.add("pytorch_model.bin", "");
  EXPECT_EQ(find_model("Org/Name", ModelParts::weights), hub.snapshot());
}

}  // namespace megatrain
