// The shared state of all ranks of a simulation.
#pragma once

#include <deque>

#include "../collective/attendance.h"
#include "../collective/custom.h"
#include "../collective/implementation.h"
#include "../collective/meetings.h"
#include "../collective/uneven.h"
#include "../config.h"
#include "../event_queue.h"
#include "../network/network.h"
#include "../system/remote_memory.h"
#include "../workload/groups.h"
#include "../workload/sync_points.h"
#include "fold.h"

namespace chakrascope::engine {

struct Cluster {
    Cluster(const Config& settings, const Fold* folded, const UnevenCollectives& uneven_ones,
            bool meet = false)
        : config(settings),
          fold(folded),
          uneven(uneven_ones),
          events(static_cast<std::size_t>(settings.num_ranks())),
          implementations(settings),
          groups(settings),
          mailbox(settings, events),
          meetings(events, mailbox.network(), meet),
          memory(settings, events),
          sync_points(settings, events),
          customs(settings),
          attendance(settings.num_ranks()) {}

    const Config& config;
    const Fold* fold;  // null if every rank is simulated
    const UnevenCollectives& uneven;
    EventQueue events;
    Implementations implementations;
    Groups groups;
    Mailbox mailbox;
    Meetings meetings;
    RemoteMemory memory;
    SyncPoints sync_points;
    CustomAlgorithms customs;
    Attendance attendance;        // filled only if chunks may overtake
    std::uint64_t overtaken = 0;  // number of chunks and nodes that overtook other chunks or nodes
    std::uint64_t replayed = 0;   // collectives replayed with recorded times
    // Whether two events of one tick might have run in another order without the fold or the meetings.
    bool tied = false;
    std::int32_t ranks_finished = 0;
    std::vector<std::int32_t> finish_order;
};

}  // namespace chakrascope::engine
