// overdrive_smpi_engine, by which programs that use the SMPI interface find the engine behind it.
//
// They ask for it by name at run time, so the same program runs without Overdrive.
#include "overdrive/smpi_engine.h"

#include "guarding.h"
#include "process.h"

namespace od::loader {
namespace {

// Written by the face in MPI_Init and MPI_Finalize, which the program orders before and after its
// calls; relaxed.
const void* g_engine;

}  // namespace

const void** SmpiEngine() { return &g_engine; }

}  // namespace od::loader

extern "C" __attribute__((visibility("default"))) const overdrive_smpi_engine*
overdrive_smpi_engine(uint32_t version) {
  od::loader::KeepFromFlying();
  const void* const found = __atomic_load_n(&od::loader::g_engine, __ATOMIC_RELAXED);
  const auto* const engine = static_cast<const struct overdrive_smpi_engine*>(found);
  return engine != nullptr && engine->version == version ? engine : nullptr;
}
