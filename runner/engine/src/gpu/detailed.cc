#include "detailed.h"

#include <algorithm>
#include <memory>

namespace chakrascope::gpu {

DetailedFabric::DetailedFabric(const Machine& machine, std::int32_t gpus, packet::Clock& clock)
    : machine_(machine),
      clock_(clock),
      mesh_(machine),
      links_(machine, clock),
      gpus_(static_cast<std::size_t>(gpus)) {
    for (Gpu& gpu : gpus_) connect(gpu);
}

void DetailedFabric::connect(Gpu& gpu) {
    const Arbitration inside = machine_.priority ? Arbitration::RequestsFirst : Arbitration::InTurn;
    const Arbitration outside = machine_.fair ? Arbitration::InTurn : Arbitration::FirstCome;
    const auto add = [&](Way& links, std::int32_t count, const LinkSettings& settings) {
        for (std::int32_t number = 0; number < count; ++number) links.push_back(links_.add(settings));
    };
    const LinkSettings unit{machine_.unit_bytes_per_ns, 0, 0, 0, inside};
    const std::int32_t buffer = machine_.buffer_flits;
    add(gpu.out, machine_.units, {machine_.unit_bytes_per_ns, 0, buffer, 0, inside});
    add(gpu.in, machine_.units, unit);
    const Fs hop = to_fs(machine_.hop_ns);
    add(gpu.mesh, mesh_.links(), {machine_.mesh_bytes_per_ns, hop, buffer, 0, inside});
    // A long link's buffer holds all flits in flight until their credits return.
    const double port = machine_.port_bytes_per_ns / machine_.ports;
    const double away = 2 * machine_.link_ns * port / machine_.flit_bytes;
    const std::int32_t room = buffer + static_cast<std::int32_t>(std::ceil(away));
    add(gpu.up, machine_.ports,
        {port, to_fs(machine_.link_ns), room, machine_.header_bytes, outside, !machine_.direct});
    if (!machine_.direct) add(gpu.down, machine_.ports, {port, 0, buffer, machine_.header_bytes, outside});
    add(gpu.into_memory, machine_.channels, {0, 0, 0, 0, inside});
    add(gpu.from_memory, machine_.channels, {0, 0, 0, 0, inside});
    gpu.memory.assign(static_cast<std::size_t>(machine_.channels),
                      Server(machine_.memory_bytes_per_ns / machine_.channels, 1));
    gpu.copy_out = gpu.sum = Server(machine_.port_bytes_per_ns, machine_.ports);
    if (machine_.switch_reduce_bytes_per_ns > 0)
        gpu.sum = Server(machine_.switch_reduce_bytes_per_ns, machine_.ports);
    gpu.nic_out = gpu.nic_in = Server(machine_.nic_bytes_per_ns, 1);
}

// The following functions append links to paths, and create parcels for a path.

void DetailedFabric::cross(Way& way, std::int32_t gpu, std::int32_t from, std::int32_t to) const {
    while (from != to) {
        const std::int32_t link = mesh_.next_link(from, to);
        way.push_back(at(gpu).mesh[static_cast<std::size_t>(link)]);
        from = mesh_.end_of(link);
    }
}

std::int32_t DetailedFabric::channel(std::uint64_t line) const {
    return static_cast<std::int32_t>(line % static_cast<std::uint64_t>(machine_.channels));
}

std::int32_t DetailedFabric::port(std::int32_t from, std::int32_t to, std::uint64_t line) const {
    const std::int32_t peer = machine_.peer_of(from, to);
    const auto count = static_cast<std::uint64_t>(machine_.ports_to(peer));
    return machine_.first_port(peer) + static_cast<std::int32_t>(line % count);
}

std::int32_t DetailedFabric::end_port(std::int32_t from, std::int32_t to, std::int32_t port) const {
    if (!machine_.direct) return port;
    const std::int32_t place = port - machine_.first_port(machine_.peer_of(from, to));
    const std::int32_t back = machine_.peer_of(to, from);
    return machine_.first_port(back) + place % machine_.ports_to(back);
}

void DetailedFabric::leave(Way& way, std::int32_t gpu, std::int32_t router, std::int32_t port) const {
    cross(way, gpu, router, machine_.router_of_port(port));
    way.push_back(at(gpu).up[static_cast<std::size_t>(port)]);
}

void DetailedFabric::enter(Way& way, std::int32_t gpu, std::int32_t port, std::int32_t router) const {
    if (!machine_.direct) way.push_back(at(gpu).down[static_cast<std::size_t>(port)]);
    cross(way, gpu, machine_.router_of_port(port), router);
}

Parcel& DetailedFabric::parcel(ParcelKind kind, bool data, Way way, std::uint32_t entered) {
    Parcel& parcel = links_.parcel();
    parcel.kind = kind;
    parcel.data = data;
    parcel.way = std::move(way);
    parcel.entered = entered;
    // Requests that leave through the same port, or end at the same place, share a virtual channel, so that a
    // blocked request delays few other requests.
    const auto lane = [&](std::int32_t aim) { return aim % machine_.virtual_channels; };
    if (entered > 0) parcel.lane_out = lane(parcel.way[entered - 1]);
    parcel.lane_in = lane(parcel.way.back());
    return parcel;
}

Parcel& DetailedFabric::to_memory(ParcelKind kind, bool data, Place from, std::int32_t gpu,
                                  std::uint64_t line) {
    const std::int32_t start = machine_.router_of_unit(from.unit);
    const std::int32_t end = machine_.router_of_channel(channel(line));
    Way way{at(from.gpu).out[static_cast<std::size_t>(from.unit)]};
    std::size_t entered = 0;
    if (gpu == from.gpu) {
        cross(way, gpu, start, end);
    } else {
        const std::int32_t by = port(from.gpu, gpu, line);
        leave(way, from.gpu, start, by);
        entered = way.size();
        enter(way, gpu, end_port(from.gpu, gpu, by), end);
    }
    way.push_back(at(gpu).into_memory[static_cast<std::size_t>(channel(line))]);
    return parcel(kind, data, std::move(way), static_cast<std::uint32_t>(entered));
}

Parcel& DetailedFabric::to_unit(ParcelKind kind, std::int32_t gpu, Place to, std::uint64_t line) {
    const std::int32_t start = machine_.router_of_channel(channel(line));
    const std::int32_t end = machine_.router_of_unit(to.unit);
    Way way{at(gpu).from_memory[static_cast<std::size_t>(channel(line))]};
    std::size_t entered = 0;
    if (gpu == to.gpu) {
        cross(way, gpu, start, end);
    } else {
        const std::int32_t by = port(gpu, to.gpu, line);
        leave(way, gpu, start, by);
        entered = way.size();
        enter(way, to.gpu, end_port(gpu, to.gpu, by), end);
    }
    way.push_back(at(to.gpu).in[static_cast<std::size_t>(to.unit)]);
    return parcel(kind, kind == kAnswer, std::move(way), static_cast<std::uint32_t>(entered));
}

Parcel& DetailedFabric::to_switch(ParcelKind kind, bool data, Place from, std::uint64_t line) {
    Way way{at(from.gpu).out[static_cast<std::size_t>(from.unit)]};
    leave(way, from.gpu, machine_.router_of_unit(from.unit), port(from.gpu, from.gpu, line));
    const auto length = static_cast<std::uint32_t>(way.size());
    return parcel(kind, data, std::move(way), length);
}

Parcel& DetailedFabric::from_switch(ParcelKind kind, bool data, std::int32_t gpu, std::uint64_t line) {
    Way way;
    enter(way, gpu, port(gpu, gpu, line), machine_.router_of_channel(channel(line)));
    way.push_back(at(gpu).into_memory[static_cast<std::size_t>(channel(line))]);
    return parcel(kind, data, std::move(way), 0);
}

// The following functions delay calls, and serve lines at memory channels.

void DetailedFabric::later(Fs delay, std::function<void()> then) {
    clock_.post<&DetailedFabric::run_later>(delay, this, new std::function<void()>(std::move(then)));
}

void DetailedFabric::run_later(std::function<void()>* then) {
    const std::unique_ptr<std::function<void()>> owned(then);
    (*owned)();
}

void DetailedFabric::serve(std::int32_t gpu, std::uint64_t line, Fs after, std::function<void()> then) {
    Train train{clock_.now(), clock_.now(), 1};
    at(gpu).memory[static_cast<std::size_t>(channel(line))].serve(train, kLineBytes);
    later(train.tail + after - clock_.now(), std::move(then));
}

// The following functions issue loads and stores, with one parcel per line.

void DetailedFabric::load(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                          Listener& listener) {
    for (std::uint64_t line = first; line < first + lines; ++line) {
        Parcel& request = to_memory(kRequest, false, from, gpu, line);
        request.arrived = [this, from, gpu, line, &listener] {
            serve(gpu, line, to_fs(machine_.memory_ns), [this, from, gpu, line, &listener] {
                Parcel& answer = to_unit(kAnswer, gpu, from, line);
                answer.arrived = [&listener] { listener.loaded(1); };
                links_.send(answer);
            });
        };
        links_.send(request);
    }
}

void DetailedFabric::store(Place from, std::int32_t gpu, std::uint64_t first, std::uint32_t lines,
                           Listener& listener) {
    for (std::uint64_t line = first; line < first + lines; ++line) {
        Parcel& data = to_memory(kWrite, true, from, gpu, line);
        data.arrived = [this, from, gpu, line, &listener] {
            serve(gpu, line, 0, [this, from, gpu, line, &listener] {
                if (gpu == from.gpu) listener.sent(1);
                listener.delivered(gpu, 1);
                if (gpu == from.gpu) return listener.acknowledged(1);
                acknowledge(from, gpu, line, listener);
            });
        };
        if (gpu != from.gpu) {
            data.leaves = data.entered - 1;
            data.left = [&listener] { listener.sent(1); };
        }
        links_.send(data);
    }
}

void DetailedFabric::acknowledge(Place from, std::int32_t gpu, std::uint64_t line, Listener& listener) {
    if (machine_.acknowledge_bytes > 0) {
        Parcel& answer = to_unit(kRequest, gpu, from, line);
        answer.arrived = [&listener] { listener.acknowledged(1); };
        return links_.send(answer);
    }
    Parcel& way = to_unit(kRequest, gpu, from, line);
    const auto hops = static_cast<double>(way.way.size() - (machine_.direct ? 3 : 4));
    links_.drop(way);
    later(to_fs(machine_.link_ns + hops * machine_.hop_ns), [&listener] { listener.acknowledged(1); });
}

// Operations of the switch, which multicasts a store to every GPU, and reduces loads from every GPU to
// one answer.

void DetailedFabric::load_sum(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                              std::uint32_t lines, Listener& listener) {
    for (std::uint64_t line = first; line < first + lines; ++line) {
        Parcel& request = to_switch(kRequest, false, from, line);
        request.arrived = [this, from, &gpus, line, &listener] {
            const auto left = std::make_shared<std::size_t>(gpus.size());
            for (const std::int32_t gpu : gpus) {
                read_for_sum(gpu, line, [this, from, line, left, &listener] {
                    if (--*left == 0) answer_sum(from, line, listener);
                });
            }
        };
        links_.send(request);
    }
}

void DetailedFabric::read_for_sum(std::int32_t gpu, std::uint64_t line, std::function<void()> came) {
    Parcel& request = from_switch(kRequest, false, gpu, line);
    request.arrived = [this, gpu, line, came = std::move(came)] {
        serve(gpu, line, to_fs(machine_.memory_ns), [this, gpu, line, came] {
            Way way{at(gpu).from_memory[static_cast<std::size_t>(channel(line))]};
            leave(way, gpu, machine_.router_of_channel(channel(line)), port(gpu, gpu, line));
            const auto length = static_cast<std::uint32_t>(way.size());
            Parcel& answer = parcel(kAnswer, true, std::move(way), length);
            answer.arrived = came;
            links_.send(answer);
        });
    };
    links_.send(request);
}

void DetailedFabric::answer_sum(Place from, std::uint64_t line, Listener& listener) {
    Train train{clock_.now(), clock_.now(), 1};
    if (machine_.switch_reduce_bytes_per_ns > 0) at(from.gpu).sum.serve(train, kLineBytes);
    later(train.tail + to_fs(machine_.switch_reduce_ns) - clock_.now(), [this, from, line, &listener] {
        Way way;
        enter(way, from.gpu, port(from.gpu, from.gpu, line), machine_.router_of_unit(from.unit));
        way.push_back(at(from.gpu).in[static_cast<std::size_t>(from.unit)]);
        Parcel& answer = parcel(kAnswer, true, std::move(way), 0);
        answer.arrived = [&listener] { listener.loaded(1); };
        links_.send(answer);
    });
}

void DetailedFabric::multicast(Place from, const std::vector<std::int32_t>& gpus, std::uint64_t first,
                               std::uint32_t lines, Listener& listener) {
    for (std::uint64_t line = first; line < first + lines; ++line) {
        Parcel& data = to_switch(kWrite, true, from, line);
        data.leaves = static_cast<std::uint32_t>(data.way.size()) - 1;
        data.left = [&listener] { listener.sent(1); };
        data.arrived = [this, from, &gpus, line, &listener] {
            const auto left = std::make_shared<std::size_t>(gpus.size());
            for (const std::int32_t gpu : gpus) {
                write_from_switch(gpu, line, listener, [this, left, &listener] {
                    if (--*left > 0) return;
                    later(to_fs(machine_.link_ns), [&listener] { listener.acknowledged(1); });
                });
            }
        };
        links_.send(data);
    }
}

void DetailedFabric::write_from_switch(std::int32_t gpu, std::uint64_t line, Listener& listener,
                                       std::function<void()> written) {
    Parcel& data = from_switch(kWrite, true, gpu, line);
    data.arrived = [this, gpu, line, &listener, written = std::move(written)] {
        serve(gpu, line, 0, [gpu, &listener, written] {
            listener.delivered(gpu, 1);
            written();
        });
    };
    links_.send(data);
}

void DetailedFabric::control(Place from, std::int32_t gpu, Arrival& arrival) {
    Parcel& request = to_memory(kRequest, false, from, gpu, 0);
    request.arrived = [&arrival] { arrival.arrived(); };
    links_.send(request);
}

// Copy engines and NICs are outside the on-chip network. They are modelled as servers, as in the fast fabric.
void DetailedFabric::transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Arrival& arrival) {
    const bool away = from / machine_.gpus != to / machine_.gpus;
    const auto lines = static_cast<std::uint32_t>((bytes + kLineBytes - 1) / kLineBytes);
    Train train{clock_.now(), clock_.now(), std::max(1u, lines)};
    const std::uint32_t size = lines > 0 ? kLineBytes : machine_.control_bytes;
    (away ? at(from).nic_out : at(from).copy_out).serve(train, size);
    const Fs latency = to_fs(away ? machine_.nic_ns : machine_.link_ns);
    train.head += latency;
    train.tail += latency;
    if (away) at(to).nic_in.serve(train, size);
    later(train.tail - clock_.now(), [&arrival] { arrival.arrived(); });
}

void DetailedFabric::take_memory(std::int32_t gpu, double share) {
    constexpr double kMost = 0.95;
    at(gpu).memory_taken += share;
    for (Server& channel : at(gpu).memory)
        channel.slow_down(1 / (1 - std::clamp(at(gpu).memory_taken, 0.0, kMost)));
}

Fs DetailedFabric::memory_work(std::int32_t gpu) const {
    Fs work = 0;
    for (const Server& channel : at(gpu).memory) work += channel.busy();
    return work / machine_.channels;
}

std::vector<LinkReport> DetailedFabric::links() const {
    std::vector<LinkReport> found;
    const auto add = [&](std::int32_t source, std::int32_t destination, const Way& ports, std::int32_t first,
                         std::int32_t count) {
        LinkReport report{source, destination};
        for (std::int32_t port = first; port < first + count; ++port) {
            const Links::Use& use = links_.use(ports[static_cast<std::size_t>(port)]);
            report.bytes += use.bytes;
            report.lines += use.lines;
            report.busy += use.busy / count;
            report.queued += use.queued;
        }
        found.push_back(report);
    };
    for (std::int32_t gpu = 0; gpu < static_cast<std::int32_t>(gpus_.size()); ++gpu) {
        if (!machine_.direct) {
            add(gpu, kSwitch, at(gpu).up, 0, machine_.ports);
            add(kSwitch, gpu, at(gpu).down, 0, machine_.ports);
        }
        const std::int32_t node = gpu / machine_.gpus * machine_.gpus;
        for (std::int32_t peer = 0; peer < machine_.peers() && machine_.direct; ++peer) {
            const std::int32_t other = node + peer + (node + peer >= gpu ? 1 : 0);
            add(gpu, other, at(gpu).up, machine_.first_port(peer), machine_.ports_to(peer));
        }
    }
    return found;
}

}  // namespace chakrascope::gpu
