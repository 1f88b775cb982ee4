// What every collective algorithm builds on: exchanges with peers, and the delay of the endpoint.
#pragma once

#include <cstdint>
#include <memory>

#include "../config.h"
#include "../event_queue.h"
#include "custom.h"
#include "stream.h"

namespace chakrascope::engine {

class Rank;

// Where a bundle of data goes through the endpoint.
enum class Side : std::uint8_t { ToMemory, ToNpu };

// One phase of one stream. Its events come from the mailbox (`received`) and the endpoint (`credited`).
class Algorithm {
  public:
    Algorithm(Rank& rank, Stream& stream) : rank_(rank), stream_(stream), ring_(stream.phase().ring) {}
    virtual ~Algorithm() = default;
    Algorithm(const Algorithm&) = delete;
    Algorithm& operator=(const Algorithm&) = delete;

    virtual void start() = 0;

  protected:
    virtual void received(std::uint64_t what) = 0;
    virtual void credited(std::uint64_t what) = 0;

    // Exchange with the rank at a place of the ring. What is sent *in line* leaves behind what the rank has
    // sent there before, also where the network lets no message wait for another.
    void send(std::int32_t place, std::uint64_t size, bool in_line = false);
    void receive(std::int32_t place, std::uint64_t size, std::uint64_t what = 0);
    // Move data through the endpoint; `processed` data is reduced on the way. Ends in `credited`.
    void bundle(bool processed, bool send_back, Side side, std::uint64_t size, std::uint64_t what = 0);
    // End the phase. The algorithm is gone when this returns.
    void finish();

    Rank& rank_;
    Stream& stream_;
    const Ring ring_;
};

std::unique_ptr<Algorithm> make_ring_or_direct(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_halving_doubling(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_double_binary_tree(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_rooted(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_uneven(Rank& rank, Stream& stream);
std::unique_ptr<Algorithm> make_custom(Rank& rank, Stream& stream);
// Of a phase that is worked out as a whole.
std::unique_ptr<Algorithm> make_met(Rank& rank, Stream& stream);

// Raise what keeps the algorithm of the phase from running on the phase's ring: ConfigError, or for a custom
// algorithm's file also WorkloadFormatError or DependencyError.
void require_works(const Phase& phase, const Config& config, CustomAlgorithms& customs);

// Make the algorithm of the stream's current phase; raises as `require_works`.
std::unique_ptr<Algorithm> make_algorithm(Rank& rank, Stream& stream);

}  // namespace chakrascope::engine
