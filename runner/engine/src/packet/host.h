// A host. Its network interfaces send messages in round-robin order, and acknowledge received packets.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "flow.h"
#include "port.h"

namespace chakrascope::packet {

class Host final : public Node {
  public:
    struct Reports {
        std::function<void(Flow&)> delivered;     // called when the last byte has arrived
        std::function<void(Flow&)> acknowledged;  // called when the sender has the last acknowledgement
    };

    Host(std::int32_t id, World& world, const Reports& reports)
        : Node(id, true),
          world_(world),
          settings_(world.settings),
          header_bytes_(settings_.header_bytes()),
          reports_(reports) {}

    Port& add_port();
    std::deque<Port>& ports() { return ports_; }

    // Start sending a flow whose ports and limits are set.
    void start(Flow& flow);
    Packet* next(Port& port) override;
    void receive(Port& port, Packet* packet) override;
    std::uint64_t discard(Port& port) override;
    // Move the flow to another outgoing port.
    void move(Flow& flow, const Port& before);
    // Make the port look for data to send no later than the given time.
    void wake_by(Port& port, Ticks time);

  private:
    struct Interface {
        std::vector<Flow*> flows;
        std::size_t last = 0;
        std::uint32_t turn = 1;       // number of packets until the next message may send
        std::uint32_t turn_left = 0;  // number of packets that the current message may still send
        PacketQueue acknowledgements;
        Timer alarm;
    };

    Flow* choose(const Port& port, Interface& interface);
    void set_alarm(Port& port, Interface& interface);
    bool may_send(const Port& port, const Flow& flow) const;
    Packet* make_data(Flow& flow, std::uint32_t most);
    std::uint32_t fill(const Flow& flow, Packet& packet, std::uint32_t turn);
    void take_data(Packet* packet);
    void answer(Packet* data, Kind kind);
    void take_answer(Packet* packet);
    void drop(Packet* packet);
    void finish(Flow& flow);

    World& world_;
    const Settings& settings_;
    const std::uint32_t header_bytes_;
    const Reports& reports_;
    std::deque<Port> ports_;
    std::vector<Interface> interfaces_;
};

}  // namespace chakrascope::packet
