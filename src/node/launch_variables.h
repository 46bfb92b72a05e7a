// What launchers tell a rank about its place, in the variables that they set for it.
//
// Used by the engine and, before the program starts, by the preloaded library: nothing here
// allocates or needs the C++ library. What may throw needs it wherever nothing is optimised:
// `substr`, and `starts_with`, which calls it.
#ifndef OVERDRIVE_NODE_LAUNCH_VARIABLES_H_
#define OVERDRIVE_NODE_LAUNCH_VARIABLES_H_

#include <charconv>
#include <optional>
#include <string_view>

namespace od::node {

class Variables {
 public:
  explicit Variables(const char* const* environment) : environment_(environment) {}

  std::optional<std::string_view> text(std::string_view name) const {
    for (const char* const* entry = environment_; entry != nullptr && *entry != nullptr; ++entry) {
      std::string_view line = *entry;
      if (line.size() > name.size() && std::string_view(line.data(), name.size()) == name &&
          line[name.size()] == '=') {
        line.remove_prefix(name.size() + 1);
        return line;
      }
    }
    return std::nullopt;
  }

  std::optional<int> number(std::string_view name) const {
    const auto found = text(name);
    int value = 0;
    if (!found) return std::nullopt;
    const auto parsed = std::from_chars(found->data(), found->data() + found->size(), value);
    if (parsed.ec != std::errc{} || parsed.ptr != found->data() + found->size() || value < 0) {
      return std::nullopt;
    }
    return value;
  }

 private:
  const char* const* environment_;
};

// "4(x2),3": how many tasks each node has; of the node with this number.
inline std::optional<int> tasks_of_node(std::string_view text, int node) {
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item(text.data(), comma == text.npos ? text.size() : comma);
    text.remove_prefix(comma == text.npos ? text.size() : comma + 1);
    int tasks = 0;
    int nodes = 1;
    const char* const end = item.data() + item.size();
    const auto parsed = std::from_chars(item.data(), end, tasks);
    if (parsed.ec != std::errc{}) return std::nullopt;
    if (end - parsed.ptr > 2 && parsed.ptr[0] == '(' && parsed.ptr[1] == 'x' &&
        std::from_chars(parsed.ptr + 2, end, nodes).ec != std::errc{}) {
      return std::nullopt;
    }
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

inline std::optional<int> slurm_local_size(const Variables& variables) {
  const auto node = variables.number("SLURM_NODEID");
  for (const char* const name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto tasks = variables.text(name);
    if (tasks && node) return tasks_of_node(*tasks, *node);
  }
  return std::nullopt;
}

// Where a rank is among those of its node; `mark` is a variable that its launcher sets for ranks.
struct LocalPlace {
  int rank = -1;
  int size = 0;
  const char* mark = nullptr;  // null: not known
};

// The inner launcher first: under Slurm, mpirun's ranks have Slurm's variables as well.
inline LocalPlace local_place(const Variables& variables) {
  const auto take = [](std::optional<int> rank, std::optional<int> size, const char* mark) {
    return rank && size && *rank < *size ? LocalPlace{*rank, *size, mark} : LocalPlace{};
  };
  LocalPlace place = take(variables.number("OMPI_COMM_WORLD_LOCAL_RANK"),
                          variables.number("OMPI_COMM_WORLD_LOCAL_SIZE"), "OMPI_COMM_WORLD_RANK");
  if (place.mark == nullptr) {
    place =
        take(variables.number("MPI_LOCALRANKID"), variables.number("MPI_LOCALNRANKS"), "PMI_RANK");
  }
  // Without a step it is the job's script, or a daemon of another launcher.
  if (place.mark == nullptr && variables.text("SLURM_STEP_ID")) {
    place = take(variables.number("SLURM_LOCALID"), slurm_local_size(variables), "SLURM_PROCID");
  }
  return place;
}

}  // namespace od::node

#endif  // OVERDRIVE_NODE_LAUNCH_VARIABLES_H_
