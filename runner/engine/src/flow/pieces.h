// Messages in pieces of a few packets each, which wait for links in the order in which they come: for
// messages that are as short as their windows, which are on one link at a time where a fluid is on all of its
// way.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "../fabric/report.h"
#include "../fabric/routes.h"
#include "../network/network.h"
#include "courses.h"
#include "history.h"
#include "timing.h"
#include "validity.h"

namespace chakrascope::engine::flow {

class PieceNetwork final : public Network {
  public:
    PieceNetwork(const Config& config, EventQueue& events, Mailbox& mailbox);

    void carry(std::uint32_t message) override;
    const std::vector<LinkUse>& links() const override;
    const FabricReport* report() const override;

  private:
    // A message until its last acknowledgement is back.
    struct Flow {
        std::uint32_t message = 0;
        Origin origin;
        std::uint64_t order = 0;
        FlowRecord record;
        Packets packets;
        std::uint64_t sent = 0;  // these three count packets
        std::uint64_t arrived = 0;
        std::uint64_t acknowledged = 0;
        std::uint64_t window = 0;
        std::uint64_t piece = 1;  // packets of a piece
        std::vector<std::uint32_t> forward;
        std::vector<std::uint32_t> back;
    };
    struct Piece {
        std::uint32_t flow = 0;
        std::uint32_t packets = 0;
        std::uint32_t answered = 0;           // packets of data that an answer speaks for; 0: data
        const std::uint32_t* next = nullptr;  // of the links of its way
        std::uint16_t left = 0;               // of these
        bool ends = false;                    // with the last packet of the message
        Ticks tail = 0;                       // when all of it is there
    };
    // A link, and for one that leaves a host what waits in it.
    struct Link {
        Ticks full = 0;
        Ticks answer = 0;
        Ticks delay = 0;
        Ticks free = 0;
        Ticks patience = 0;  // of a queue, before the switch may pause its neighbours
        Ticks owed = 0;      // to answers that take the link
        bool awake = false;  // an event will look for what to send
        std::size_t turn = 0;
        std::vector<std::uint32_t> senders;  // messages with packets to send
        std::deque<std::uint32_t> answers;   // pieces
    };
    bool advance(std::int64_t limit_ns);
    void wake(std::uint32_t link, Ticks time);
    void send(std::uint32_t link);
    std::uint32_t next_sender(Link& link);
    std::uint32_t cut(std::uint32_t flow);
    void arrive(std::uint32_t piece);
    void take_data(const Piece& piece);
    void answer(std::uint32_t number, std::uint64_t answers, std::uint64_t packets);
    void take_answer(const Piece& piece);
    void pass(std::uint32_t piece, std::uint32_t link);
    void count(std::uint32_t link, std::uint64_t packets, std::uint64_t bytes, Ticks time);
    void finish(Flow& flow);
    Ticks last_time(const Piece& piece, std::uint32_t link) const;
    std::uint64_t bytes_of(const Piece& piece) const;
    std::uint32_t keep(const Piece& piece);
    std::uint64_t window_of(std::int32_t source, std::int32_t destination);

    EventQueue& events_;
    Mailbox& mailbox_;
    const packet::Settings& settings_;
    const double shake_;                // packets
    const std::uint32_t most_packets_;  // of a piece
    const std::uint64_t packets_an_answer_;
    const std::vector<std::int32_t>& hosts_;
    Routes routes_;
    SourcePorts ports_;
    Timing timing_;
    const Validity validity_;
    PathMeasure longest_;
    std::vector<Link> links_;
    std::vector<Flow> flows_;
    std::vector<std::uint32_t> free_flows_;
    std::vector<Piece> pieces_;
    std::vector<std::uint32_t> free_pieces_;
    Courses courses_;  // of each link: what arrives over it; behind these: looks for what to send
    Ticks now_ = 0;
    Ticks until_ = 0;  // of this advance: the earliest completion that it has told the queue
    std::uint64_t carried_ = 0;
    std::uint64_t passed_ = 0;
    bool pauses_ = false;

    const bool recording_;
    History history_;
    mutable std::vector<LinkUse> uses_;
    mutable FabricReport report_;
};

}  // namespace chakrascope::engine::flow
